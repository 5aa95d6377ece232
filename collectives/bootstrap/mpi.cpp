#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/mpi_lock.hpp"

namespace gantry {

namespace {

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(fmt::format("Failed exchanging bootstrap data over MPI: {} [{}]", text, call));
}

// Set when this rank gave up on others, who will not come to MPI_Finalize either.
std::atomic<bool> has_given_up{false};

void finalize_at_exit() {
  if (has_given_up.load()) return;  // mpirun notices, and ends the others
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

// Ends the process if it lives longer than `timeout`: MPI_Init waits for all ranks for ever and
// cannot be interrupted. mpirun then ends the others.
class InitDeadline {
 public:
  explicit InitDeadline(std::chrono::milliseconds timeout)
      : thread_([this, timeout] {
          std::unique_lock lock(mutex_);
          if (done_.wait_for(lock, timeout, [this] { return over_; })) return;
          fmt::print(stderr,
                     "gantry: Communicator::world: waited {} in MPI_Init, but other ranks did not "
                     "come (GANTRY_COLL_TIMEOUT sets the deadline); this rank ends\n",
                     duration_text(timeout));
          std::_Exit(1);
        }) {}
  ~InitDeadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    done_.notify_one();
    thread_.join();
  }
  InitDeadline(const InitDeadline&) = delete;
  InitDeadline& operator=(const InitDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::thread thread_;
};

// Waits for a request, without keeping other threads from calling MPI. False: no longer than that.
bool ends_within(std::chrono::milliseconds timeout, MPI_Request& request) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    {
      int done = 0;
      const std::lock_guard lock(mpi_lock());
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) return true;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      has_given_up.store(true);
      return false;
    }
    std::this_thread::yield();
  }
}

std::string lateness_text(std::string_view purpose, int rank, std::chrono::milliseconds waited) {
  return fmt::format(
      "{}: rank {} waited {}, but other ranks, of which MPI does not say which, did not come "
      "(GANTRY_COLL_TIMEOUT sets the deadline)",
      purpose, rank, duration_text(waited));
}

class MpiBootstrap final : public Bootstrap {
 public:
  // A bootstrap over all ranks of the program.
  static std::unique_ptr<MpiBootstrap> make_world(std::chrono::milliseconds timeout) {
    int initialized = 0;
    check(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized == 0) {
      const InitDeadline deadline(timeout);
      int provided = 0;
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
      std::atexit(finalize_at_exit);
    }
    // A communicator of our own: messages never meet those of the program.
    auto comm = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Comm_idup(MPI_COMM_WORLD, comm.get(), &request), "MPI_Comm_idup");
    if (!ends_within(timeout, request)) {
      (void)comm.release();  // MPI may still write there
      int rank = 0;
      check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
      throw TimeoutError(lateness_text("Communicator::world", rank, timeout));
    }
    return std::make_unique<MpiBootstrap>(*comm, timeout);
  }

  // Keeps `comm` until MPI ends: to free it, all members would have to come together again.
  MpiBootstrap(MPI_Comm comm, std::chrono::milliseconds timeout) : comm_(comm), timeout_(timeout) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const auto count = static_cast<std::size_t>(size_);
    auto data = std::make_unique<Exchange>();
    data->sent = bytes;
    data->length = static_cast<int>(bytes.size());
    data->lengths.resize(count);
    complete(data, [&](MPI_Request* request) {
      return MPI_Iallgather(&data->length, 1, MPI_INT, data->lengths.data(), 1, MPI_INT, comm_,
                            request);
    });
    int total = 0;
    for (const int length : data->lengths) {
      data->offsets.push_back(total);
      total += length;
    }
    data->joined.resize(static_cast<std::size_t>(total));
    complete(data, [&](MPI_Request* request) {
      return MPI_Iallgatherv(data->sent.data(), data->length, MPI_BYTE, data->joined.data(),
                             data->lengths.data(), data->offsets.data(), MPI_BYTE, comm_, request);
    });
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(data->joined.substr(static_cast<std::size_t>(data->offsets[i]),
                                        static_cast<std::size_t>(data->lengths[i])));
    }
    return all;
  }

  // mpirun itself ends the job when a rank dies.
  int lost_rank() const noexcept override { return -1; }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    constexpr std::size_t kTags = 32'768;  // every MPI has as many
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
    int status = MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    MPI_Group_free(&all);
    check(status, "MPI_Group_incl");
    const auto tag = static_cast<int>(std::hash<std::string_view>{}(name) % kTags);
    status = MPI_Comm_create_group(comm_, some, tag, &comm);
    MPI_Group_free(&some);
    check(status, "MPI_Comm_create_group");
    return std::make_unique<MpiBootstrap>(comm, timeout_);
  }

 private:
  // What MPI reads and writes during an exchange.
  struct Exchange {
    std::string sent;
    int length = 0;
    std::vector<int> lengths;
    std::vector<int> offsets;
    std::string joined;
  };

  // Starts an operation on `data` and waits for it.
  template <class Start>
  void complete(std::unique_ptr<Exchange>& data, Start start) const {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::lock_guard lock(mpi_lock());
      check(start(&request), "MPI_Iallgather");
    }
    if (ends_within(timeout_, request)) return;
    (void)data.release();  // MPI may still write there
    throw TimeoutError(lateness_text(purpose(), rank_, timeout_));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int size_ = 0;
  int rank_ = 0;
  std::chrono::milliseconds timeout_;
};

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap(std::chrono::milliseconds timeout) {
  return MpiBootstrap::make_world(timeout);
}

}  // namespace gantry
