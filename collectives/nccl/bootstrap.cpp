// The exchange of byte strings over an NCCL communicator of the program.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/nccl/nccl_threads.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "memory/backends.hpp"

namespace gantry {

namespace {

constexpr const char* kMaker = "Communicator::from_nccl";

// The communicator, with a stream for the exchanges. Bootstraps of subsets share it. The memory of
// the exchanges is cached memory: the driver's free would wait for the other ranks of this process,
// whose kernels may wait for this one (Note [Freeing beside waiting kernels]).
struct SharedNcclComm {
  SharedNcclComm(ncclComm_t comm, Device device)
      : comm(comm),
        device(device),
        stream(driver().create_stream(device.index, 0)),
        event(driver().create_event(device.index, {})) {}
  ~SharedNcclComm() {
    if (is_stuck) {  // its kernel still runs
      (void)buffer.release();
      return;
    }
    buffer.reset();
    driver().destroy_event(event);
    driver().destroy_stream(stream);
  }
  SharedNcclComm(const SharedNcclComm&) = delete;
  SharedNcclComm& operator=(const SharedNcclComm&) = delete;

  const ncclComm_t comm;
  const Device device;
  const NativeStream stream;
  const NativeEvent event;
  std::mutex mutex;  // around every exchange
  bool is_stuck = false;
  memory::Buffer buffer;

  // Memory of `bytes` on the device, for work on the stream.
  std::byte* room(std::size_t bytes) {
    if (bytes > buffer.bytes()) {
      const Stream on = Stream::external(stream.handle, device);
      buffer = memory::Buffer(memory::standard_allocator().allocate(on, bytes));
    }
    return static_cast<std::byte*>(buffer.data());
  }
};

// One exchange: `width` bytes of every member.
struct Exchange {
  std::vector<int> members;  // ranks of the communicator
  bool is_all;               // all of its ranks, in order
  const std::byte* own;
  std::byte* others;
  std::size_t width;

  void enqueue(const SharedNcclComm& shared) const {
    auto* const stream = static_cast<cudaStream_t>(shared.stream.handle);
    if (is_all) {
      check_nccl(nccl().all_gather(own, others, width, ncclUint8, shared.comm, stream),
                 "ncclAllGather", "exchanging addresses", shared.comm);
      return;
    }
    in_nccl_group("ncclSend, ncclRecv", "exchanging addresses", shared.comm, [&] {
      ncclResult_t failure = ncclSuccess;
      for (std::size_t i = 0; i < members.size() && failure == ncclSuccess; ++i) {
        failure = nccl().send(own, width, ncclUint8, members[i], shared.comm, stream);
        if (failure != ncclSuccess) break;
        failure =
            nccl().recv(others + i * width, width, ncclUint8, members[i], shared.comm, stream);
      }
      return failure;
    });
  }
};

// The end of a call that another thread makes.
struct CallEnd {
  std::mutex mutex;  // of the other members
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr failure;

  void set(std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    failure = std::move(why);
    is_done = true;
    changed.notify_one();
  }
};

class NcclBootstrap final : public Bootstrap {
 public:
  // `members` are ranks of the communicator. `is_all`: all of them, in order.
  NcclBootstrap(std::shared_ptr<SharedNcclComm> shared, std::vector<int> members, std::size_t rank,
                bool is_all, std::chrono::milliseconds timeout)
      : shared_(std::move(shared)),
        members_(std::move(members)),
        rank_(rank),
        is_all_(is_all),
        timeout_(timeout) {}

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const std::lock_guard lock(shared_->mutex);
    const auto length = static_cast<std::uint64_t>(bytes.size());
    const std::string lengths =
        exchange({reinterpret_cast<const char*>(&length), sizeof length}, sizeof length);
    std::vector<std::uint64_t> sizes(members_.size());
    std::memcpy(sizes.data(), lengths.data(), lengths.size());
    const std::uint64_t width =
        std::max<std::uint64_t>(1, *std::max_element(sizes.begin(), sizes.end()));
    const std::string joined = exchange(bytes, width);
    std::vector<std::string> all;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      all.push_back(joined.substr(i * width, sizes[i]));
    }
    return all;
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view /*name*/) override {
    if (members.size() == 1) return make_single_bootstrap();
    const int rank = rank_among(members, static_cast<int>(rank_));
    return std::make_unique<NcclBootstrap>(shared_, entries_of(members_, members),
                                           static_cast<std::size_t>(rank), false, timeout_);
  }

  std::unique_ptr<Bootstrap> move_to(const ControlSegment& own) override {
    return through(own, members_.size());
  }

 private:
  // Every member's bytes, padded to `width` bytes each. Requires: the mutex held.
  std::string exchange(std::string bytes, std::size_t width) {
    SharedNcclComm& shared = *shared_;
    if (shared.is_stuck) {
      throw TimeoutError(fmt::format("{}: an earlier exchange over NCCL did not end", purpose()));
    }
    const DeviceGuard guard(shared.device);
    bytes.resize(width);
    std::string all(width * members_.size(), '\0');
    std::byte* const own = shared.room(width + all.size());
    std::byte* const others = own + width;
    driver().copy(own, bytes.data(), width, shared.stream);
    try {
      enqueue({members_, is_all_, own, others, width});
      driver().record_event(shared.event, shared.stream);
      await_event();
    } catch (...) {
      shared.is_stuck = true;
      throw;
    }
    driver().copy(all.data(), others, all.size(), shared.stream);
    driver().record_event(shared.event, shared.stream);
    await_event();
    return all;
  }

  // NCCL connects ranks in their first call together, and that call blocks until all of them come.
  // So another thread makes it. One that does not return keeps what it uses, until the program
  // aborts the communicator. Throws: NcclError; TimeoutError.
  void enqueue(Exchange exchange) const {
    auto end = std::make_shared<CallEnd>();
    const bool is_called =
        NcclThreads::instance().start("gantry-nccl", [end, shared = shared_, exchange] {
          try {
            const DeviceGuard guard(shared->device);
            exchange.enqueue(*shared);
            end->set(nullptr);
          } catch (...) {
            end->set(std::current_exception());
          }
        });
    if (!is_called) throw Error(purpose() + ": failed to start a thread");
    SuspendAwareTimeout countdown(timeout_);
    std::unique_lock lock(end->mutex);
    while (!end->is_done) {
      if (countdown.has_expired()) throw_late();
      end->changed.wait_for(lock, countdown.next_wait());
    }
    if (end->failure) std::rethrow_exception(end->failure);
  }

  [[noreturn]] void throw_late() const {
    throw TimeoutError(fmt::format(
        "{}: rank {} waited {}, but other ranks, of which NCCL does not say which, did not come "
        "(GANTRY_COLL_TIMEOUT sets the deadline)",
        purpose(), rank_, duration_text(timeout_)));
  }

  // Throws: NcclError; TimeoutError.
  void await_event() const {
    SuspendAwareTimeout countdown(timeout_);
    while (!driver().event_reached(shared_->event)) {
      ncclResult_t error = ncclSuccess;
      if (nccl().comm_get_async_error(shared_->comm, &error) == ncclSuccess &&
          error != ncclInProgress) {
        check_nccl(error, "ncclCommGetAsyncError", "exchanging addresses", shared_->comm);
      }
      if (countdown.has_expired()) throw_late();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::shared_ptr<SharedNcclComm> shared_;
  std::vector<int> members_;
  std::size_t rank_;
  bool is_all_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

ForeignBootstrap make_nccl_bootstrap(ncclComm* comm, Device device,
                                     std::chrono::milliseconds timeout) {
  nccl_library().require(kMaker);
  int count = 0;
  int rank = 0;
  int index = -1;
  check_nccl(nccl().comm_count(comm, &count), "ncclCommCount", "reading a communicator", comm);
  check_nccl(nccl().comm_user_rank(comm, &rank), "ncclCommUserRank", "reading a communicator",
             comm);
  check_nccl(nccl().comm_cu_device(comm, &index), "ncclCommCuDevice", "reading a communicator",
             comm);
  if (index != device.index) {
    throw InvalidArgument(fmt::format("{}: expected a communicator of {}, but got one of {}",
                                      kMaker, device.str(), Device::cuda(index).str()));
  }
  if (count == 1) return {make_single_bootstrap(), 0, 1};
  std::vector<int> everyone(static_cast<std::size_t>(count));
  std::iota(everyone.begin(), everyone.end(), 0);
  return {std::make_unique<NcclBootstrap>(std::make_shared<SharedNcclComm>(comm, device),
                                          std::move(everyone), static_cast<std::size_t>(rank), true,
                                          timeout),
          rank, count};
}

}  // namespace gantry
