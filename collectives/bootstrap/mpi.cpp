#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/mpi.hpp"
#include "collectives/mpi/library.hpp"
#include "core/processes/background_thread.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

std::mutex& mpi_lock() {
  static std::mutex lock;
  return lock;
}

MpiComm& mpi_links_comm() {
  static MpiComm comm;
  return comm;
}

namespace {

void check(int status, const char* call) {
  if (status == 0) return;
  throw Error(fmt::format("Failed exchanging bootstrap data over MPI: {} [{}]",
                          mpi_error_text(status), call));
}

// Set when this rank timed out: the missing ranks will not call MPI_Finalize either.
std::atomic<bool> has_failed{false};

void finalize_at_exit() {
  if (has_failed.load()) return;  // mpirun detects the exit and ends the other ranks
  int finalized = 0;
  mpi().finalized(&finalized);
  if (finalized == 0) mpi().finalize();
}

// Ends the process if this object lives longer than `timeout`. MPI_Init waits for all ranks without
// a deadline and cannot be interrupted. mpirun then ends the other ranks.
class InitDeadline {
 public:
  explicit InitDeadline(std::chrono::milliseconds timeout)
      : thread_(start_background_thread("gantry-mpi-init", [this, timeout] {
          std::unique_lock lock(mutex_);
          SuspendAwareTimeout countdown(timeout);
          while (!done_.wait_for(lock, countdown.next_wait(), [this] { return over_; }) &&
                 !countdown.has_expired()) {
          }
          if (over_) return;
          fmt::print(stderr,
                     "gantry: Communicator::world: waited {} in MPI_Init, but other ranks did not "
                     "come (GANTRY_COLL_TIMEOUT sets the deadline); this rank ends\n",
                     duration_text(timeout));
          std::_Exit(1);
        })) {}
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

// Waits for requests, and lets other threads call MPI meanwhile. Returns false after the timeout.
bool end_within(std::chrono::milliseconds timeout, std::vector<MpiRequest>& requests) {
  SuspendAwareTimeout countdown(timeout);
  for (;;) {
    {
      bool all_done = true;
      const std::lock_guard lock(mpi_lock());
      for (MpiRequest& request : requests) {
        int is_done = 0;
        check(mpi().test(&request, &is_done, nullptr), "MPI_Test");
        all_done = all_done && is_done != 0;
      }
      if (all_done) return true;
    }
    if (countdown.has_expired()) {
      has_failed.store(true);
      return false;
    }
    std::this_thread::yield();
  }
}

// Returns a tag for the messages of a group, unique to its name.
int tag_of(std::string_view name) {
  int most = 0;
  const std::lock_guard lock(mpi_lock());
  check(mpi().max_tag(&most), "MPI_Comm_get_attr");
  return static_cast<int>(std::hash<std::string_view>{}(name) % static_cast<std::size_t>(most)) + 1;
}

std::string host_timeout_text(std::string_view purpose, int rank,
                              std::chrono::milliseconds waited) {
  return fmt::format(
      "{}: rank {} waited {}, but other ranks, of which MPI does not say which, did not come "
      "(GANTRY_COLL_TIMEOUT sets the deadline)",
      purpose, rank, duration_text(waited));
}

// Makes a private communicator, separate from the program's messages. Throws: TimeoutError.
MpiComm duplicate(MpiComm original, std::string_view purpose, std::chrono::milliseconds timeout) {
  auto comm = std::make_unique<MpiComm>();
  std::vector<MpiRequest> requests(1);
  int rank = 0;
  {
    const std::lock_guard lock(mpi_lock());
    check(mpi().comm_rank(original, &rank), "MPI_Comm_rank");
    check(mpi().comm_idup(original, comm.get(), requests.data()), "MPI_Comm_idup");
  }
  if (!end_within(timeout, requests)) {
    (void)comm.release();  // MPI may still write there
    throw TimeoutError(host_timeout_text(purpose, rank, timeout));
  }
  const std::lock_guard lock(mpi_lock());
  check(mpi().comm_return_errors(*comm), "MPI_Comm_set_errhandler");
  return *comm;
}

// A private communicator, which bootstraps of subsets share. MPI_Comm_free is local in MPI
// libraries, though the standard lets it wait for the other ranks. A communicator of all ranks is
// never freed: see Note [Groups over MPI].
class SharedComm {
 public:
  SharedComm(MpiComm comm, bool is_freed) : comm_(comm), is_freed_(is_freed) {}
  ~SharedComm() {
    if (!is_freed_ || has_failed.load()) return;
    const std::lock_guard lock(mpi_lock());
    int finalized = 0;
    if (mpi().finalized(&finalized) == 0 && finalized == 0) (void)mpi().comm_free(comm_);
  }
  SharedComm(const SharedComm&) = delete;
  SharedComm& operator=(const SharedComm&) = delete;

  MpiComm get() const { return comm_; }

 private:
  MpiComm comm_;
  bool is_freed_;
};

class MpiBootstrap final : public Bootstrap {
 public:
  // A bootstrap over all ranks of the program.
  static std::unique_ptr<MpiBootstrap> make_world(std::chrono::milliseconds timeout) {
    int initialized = 0;
    check(mpi().initialized(&initialized), "MPI_Initialized");
    if (initialized == 0) {
      const InitDeadline deadline(timeout);
      check(mpi().initialize(), "MPI_Init_thread");
      std::atexit(finalize_at_exit);
    }
    const auto comm = std::make_shared<const SharedComm>(duplicate(mpi().world, kWorld, timeout),
                                                         /*is_freed=*/false);
    const MpiComm links = duplicate(mpi().world, kWorld, timeout);
    const std::lock_guard lock(mpi_lock());
    mpi_links_comm() = links;
    return of_all(comm, timeout);
  }

  // A bootstrap over all ranks of a communicator of the program.
  static std::unique_ptr<MpiBootstrap> make(MpiComm original, std::chrono::milliseconds timeout) {
    const auto comm = std::make_shared<const SharedComm>(duplicate(original, kFromMpi, timeout),
                                                         /*is_freed=*/true);
    const std::lock_guard lock(mpi_lock());
    return of_all(comm, timeout);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // A bootstrap of `members` of `comm`, which use `tag`. Making an MPI communicator for them would
  // block without a deadline.
  MpiBootstrap(std::shared_ptr<const SharedComm> comm, std::vector<int> members, int rank, int tag,
               std::chrono::milliseconds timeout)
      : comm_(std::move(comm)),
        members_(std::move(members)),
        rank_(rank),
        tag_(tag),
        timeout_(timeout) {}

  std::vector<std::string> all_gather(const std::string& bytes) override {
    auto data = std::make_unique<Exchange>();
    data->sent = bytes;
    data->length = static_cast<std::int64_t>(bytes.size());
    data->lengths.resize(members_.size());
    tag_ == kAllTogether ? gather_together(data) : gather_from_each(data);
    std::vector<std::string> all;
    std::size_t at = 0;
    for (const std::int64_t length : data->lengths) {
      all.push_back(data->joined.substr(at, static_cast<std::size_t>(length)));
      at += static_cast<std::size_t>(length);
    }
    return all;
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    return std::make_unique<MpiBootstrap>(comm_, entries_of(members_, members),
                                          rank_among(members, rank_), tag_of(name), timeout_);
  }

 private:
  // Instead of a tag: all ranks of `comm_`, with MPI's collectives.
  static constexpr int kAllTogether = 0;
  // In error texts.
  static constexpr const char* kWorld = "Communicator::world";
  static constexpr const char* kFromMpi = "Communicator(MPI_Comm)";

  // Requires: mpi_lock() held.
  static std::unique_ptr<MpiBootstrap> of_all(std::shared_ptr<const SharedComm> comm,
                                              std::chrono::milliseconds timeout) {
    int rank = 0;
    int size = 0;
    check(mpi().comm_rank(comm->get(), &rank), "MPI_Comm_rank");
    check(mpi().comm_size(comm->get(), &size), "MPI_Comm_size");
    std::vector<int> everyone(static_cast<std::size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    return std::make_unique<MpiBootstrap>(std::move(comm), std::move(everyone), rank, kAllTogether,
                                          timeout);
  }

  // The buffers of an exchange.
  struct Exchange {
    std::string sent;
    std::int64_t length = 0;
    std::vector<std::int64_t> lengths;
    std::vector<int> counts;  // the lengths as MPI's type
    std::vector<int> offsets;
    std::string joined;
    std::vector<MpiRequest> requests;

    // Allocates memory for all ranks' bytes, once the lengths are known. Throws: InvalidArgument,
    // on all ranks.
    void make_room(std::string_view purpose) {
      const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
      if (total > INT_MAX) {
        throw InvalidArgument(
            fmt::format("{}: expected at most {} bytes of all ranks together over MPI, but got {}",
                        purpose, INT_MAX, total));
      }
      for (const std::int64_t length_of_one : lengths) {
        offsets.push_back(counts.empty() ? 0 : offsets.back() + counts.back());
        counts.push_back(static_cast<int>(length_of_one));
      }
      joined.resize(static_cast<std::size_t>(total));
    }
  };

  void gather_together(std::unique_ptr<Exchange>& data) const {
    data->requests.resize(1);
    complete(data, [&] {
      check(mpi().iallgather(&data->length, sizeof data->length, data->lengths.data(), comm_->get(),
                             data->requests.data()),
            "MPI_Iallgather");
    });
    data->make_room(purpose());
    complete(data, [&] {
      check(mpi().iallgatherv(data->sent.data(), static_cast<int>(data->length),
                              data->joined.data(), data->counts.data(), data->offsets.data(),
                              comm_->get(), data->requests.data()),
            "MPI_Iallgatherv");
    });
  }

  // Groups are small, so every rank sends to every rank.
  void gather_from_each(std::unique_ptr<Exchange>& data) const {
    data->lengths[static_cast<std::size_t>(rank_)] = data->length;
    constexpr int kLengthBytes = sizeof data->length;
    exchange(data, &data->length, kLengthBytes,
             [&](std::size_t i) { return std::pair<void*, int>(&data->lengths[i], kLengthBytes); });
    data->make_room(purpose());
    data->joined.replace(static_cast<std::size_t>(data->offsets[static_cast<std::size_t>(rank_)]),
                         data->sent.size(), data->sent);
    exchange(data, data->sent.data(), static_cast<int>(data->length), [&](std::size_t i) {
      return std::pair<void*, int>(data->joined.data() + data->offsets[i], data->counts[i]);
    });
  }

  // Sends the same bytes to all other members, and receives the bytes of member i at place_of(i).
  template <class PlaceOf>
  void exchange(std::unique_ptr<Exchange>& data, const void* sent, int bytes,
                PlaceOf place_of) const {
    data->requests.assign(2 * members_.size(), MpiRequest{});
    complete(data, [&] {
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (static_cast<int>(i) == rank_) continue;
        const auto [place, room] = place_of(i);
        check(mpi().irecv(place, room, members_[i], tag_, comm_->get(), &data->requests[2 * i]),
              "MPI_Irecv");
        check(mpi().isend(sent, bytes, members_[i], tag_, comm_->get(), &data->requests[2 * i + 1]),
              "MPI_Isend");
      }
    });
  }

  // Starts operations on `data` and waits for them.
  template <class Start>
  void complete(std::unique_ptr<Exchange>& data, Start start) const {
    try {
      {
        const std::lock_guard lock(mpi_lock());
        start();
      }
      if (end_within(timeout_, data->requests)) return;
    } catch (...) {
      (void)data.release();  // MPI may still write there
      throw;
    }
    (void)data.release();
    throw TimeoutError(host_timeout_text(purpose(), rank_, timeout_));
  }

  std::shared_ptr<const SharedComm> comm_;
  std::vector<int> members_;  // as ranks of comm_
  int rank_ = 0;              // among them
  int tag_ = kAllTogether;
  std::chrono::milliseconds timeout_;
};

}  // namespace

bool has_mpi() { return mpi_module().problem().empty(); }

std::unique_ptr<Bootstrap> make_mpi_bootstrap(const ProcessIdentity& identity,
                                              std::chrono::milliseconds timeout) {
  mpi_module().require("Communicator::world");
  auto world = MpiBootstrap::make_world(timeout);
  if (world->rank() != identity.rank || world->size() != identity.world_size) {
    throw InvalidArgument(fmt::format(
        "Communicator::world: expected rank {} of {} in MPI_COMM_WORLD, as OMPI_COMM_WORLD_RANK "
        "and OMPI_COMM_WORLD_SIZE say, but got rank {} of {}: MPI does not know the job; start the "
        "ranks with the mpirun of the MPI that gantry was built with, or unset the variables",
        identity.rank, identity.world_size, world->rank(), world->size()));
  }
  return world;
}

ForeignBootstrap make_mpi_bootstrap(std::uintptr_t comm, std::chrono::milliseconds timeout) {
  mpi_module().require("Communicator(MPI_Comm)");
  const MpiComm original{comm};
  {
    const std::lock_guard lock(mpi_lock());
    int initialized = 0;
    int finalized = 0;
    check(mpi().initialized(&initialized), "MPI_Initialized");
    check(mpi().finalized(&finalized), "MPI_Finalized");
    if (initialized == 0 || finalized != 0) {
      throw InvalidArgument(
          fmt::format("Communicator(MPI_Comm): expected MPI in use, but got MPI {}",
                      initialized == 0 ? "before MPI_Init" : "after MPI_Finalize"));
    }
    if (original == mpi().null) {
      throw InvalidArgument(
          "Communicator(MPI_Comm): expected a communicator, but got MPI_COMM_NULL");
    }
    int is_inter = 0;
    check(mpi().comm_test_inter(original, &is_inter), "MPI_Comm_test_inter");
    if (is_inter != 0) {
      throw InvalidArgument(
          "Communicator(MPI_Comm): expected an intracommunicator, but got an intercommunicator");
    }
  }
  auto bootstrap = MpiBootstrap::make(original, timeout);
  const int rank = bootstrap->rank();
  const int size = bootstrap->size();
  if (size == 1) return {make_single_bootstrap(), 0, 1};
  return {std::move(bootstrap), rank, size};
}

}  // namespace gantry
