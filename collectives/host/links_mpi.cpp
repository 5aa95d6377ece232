#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "collectives/bootstrap/mpi_lock.hpp"
#include "collectives/host/links.hpp"
#include "core/patience.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTag = 1;
// Polls without a pause before a waiting rank leaves the processor to others.
constexpr int kEagerPolls = 2000;
constexpr auto kPause = std::chrono::microseconds(20);
// For what a failed exchange has begun to receive, or to send.
constexpr auto kReleasePatience = std::chrono::seconds(1);

std::string text_of(int status) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  return text;
}

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  throw Error(fmt::format("Failed linking hosts by MPI: {} [{}]", text_of(status), call));
}

// A message that MPI still reads from, though its sender went on.
struct Detached {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Forgets those that MPI has sent. mpi_lock() is held.
void drop_sent(std::list<Detached>& messages) {
  std::erase_if(messages, [](Detached& message) {
    int done = 0;
    return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  });
}

// Of links that are gone; never destroyed, as MPI may still read them. Guarded by mpi_lock().
std::list<Detached>& left_behind() {
  static auto& messages = *new std::list<Detached>;
  return messages;
}

class MpiLinks final : public HostLinks {
 public:
  MpiLinks(const LinkGroup& group, MPI_Comm comm) : group_(group), comm_(comm) {}
  // The communicator stays: MPI_Comm_free is collective, and others may be gone.
  ~MpiLinks() override {
    const std::lock_guard lock(mpi_lock());
    if (is_in_use()) drop_sent(detached_);
    left_behind().splice(left_behind().end(), detached_);
  }

  std::string_view name() const override { return "mpi"; }

  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    if (!broken_.empty()) throw PeerLostError(broken_, culprit_);
    start(sends, receives);
    Patience patience(group_.timeout);
    for (int polls = 0;; ++polls) {
      if (aborted_) lose(group_.rank, "aborted");
      const int before = pending_;
      test(receives);
      if (pending_ == 0) return packed_.clear();
      if (pending_ < before) {
        patience.renew();
        polls = 0;
      }
      if (patience.is_over()) late();
      if (polls < kEagerPolls) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  void abort() noexcept override { aborted_ = true; }
  void leave() noexcept override {}  // MPI tells nobody

  bool release_memory() noexcept override {
    const auto deadline = Clock::now() + kReleasePatience;
    for (bool cancels = true;; cancels = false) {
      {
        const std::lock_guard lock(mpi_lock());
        if (!is_in_use() || end_requests(cancels)) return true;
      }
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  void start(std::span<const Outgoing> sends, std::span<Incoming> receives) {
    const std::lock_guard lock(mpi_lock());
    drop_arrived();
    requests_.assign(receives.size(), MPI_REQUEST_NULL);
    receives_ = receives.size();
    ranks_.clear();
    for (std::size_t i = 0; i < receives.size(); ++i) {
      require(MPI_Irecv(receives[i].room.data(), static_cast<int>(receives[i].room.size()),
                        MPI_BYTE, receives[i].rank, kTag, comm_, &requests_[i]),
              receives[i].rank);
      ranks_.push_back(receives[i].rank);
    }
    // Whoever receives, too, meets all others in one step and can wait until they have received.
    const bool detaches = receives.empty();
    for (const Outgoing& message : sends) {
      const std::size_t bytes = message.head.size() + message.body.size();
      std::span<const std::byte> whole = message.body;
      if (!message.head.empty() || (detaches && bytes <= kDetachedBytes)) {
        Detached& copy = detached_.emplace_back();
        copy.bytes.reserve(bytes);
        copy.bytes.insert(copy.bytes.end(), message.head.begin(), message.head.end());
        copy.bytes.insert(copy.bytes.end(), message.body.begin(), message.body.end());
        whole = copy.bytes;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      require(MPI_Isend(whole.data(), static_cast<int>(bytes), MPI_BYTE, message.rank, kTag, comm_,
                        &request),
              message.rank);
      if (detaches && bytes <= kDetachedBytes) {
        detached_.back().request = request;
        continue;
      }
      requests_.push_back(request);
      ranks_.push_back(message.rank);
      if (!message.head.empty()) packed_.splice(packed_.end(), detached_, --detached_.end());
    }
    pending_ = static_cast<int>(requests_.size());
  }

  void test(std::span<Incoming> receives) {
    const std::lock_guard lock(mpi_lock());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      int done = 0;
      MPI_Status status{};
      require(MPI_Test(&requests_[i], &done, &status), ranks_[i]);
      if (done == 0) continue;
      --pending_;
      if (i >= receives.size()) continue;
      int bytes = 0;
      require(MPI_Get_count(&status, MPI_BYTE, &bytes), ranks_[i]);
      receives[i].bytes = static_cast<std::size_t>(bytes);
    }
    // MPI moves small messages on only while it is called.
    drop_arrived();
  }

  void drop_arrived() {
    drop_sent(detached_);
    drop_sent(left_behind());
  }

  // False when MPI has ended.
  bool is_in_use() const noexcept {
    int finalized = 0;
    return MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
  }

  // True if nothing of the last exchange is under way any more. Sends cannot be cancelled.
  bool end_requests(bool cancels) noexcept {
    bool all = true;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (cancels && i < receives_) MPI_Cancel(&requests_[i]);
      int done = 0;
      MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      all = all && done != 0;
    }
    return all;
  }

  void require(int status, int rank) {
    if (status == MPI_SUCCESS) return;
    lose(rank, fmt::format("was lost ({})", text_of(status)));
  }

  [[noreturn]] void lose(int rank, const std::string& how) {
    culprit_ = rank;
    broken_ =
        fmt::format("rank {} {}; the communicator of {} ranks is unusable", rank, how, group_.size);
    throw PeerLostError(broken_, rank);
  }

  [[noreturn]] void late() {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) ranks.push_back(ranks_[i]);
    }
    culprit_ = ranks.front();
    broken_ = fmt::format(
        "collective: rank {} waited {} s, but rank(s) {} did not enter the operation "
        "(GANTRY_COLL_TIMEOUT sets the deadline)",
        group_.rank, std::chrono::duration<double>(group_.timeout).count(), fmt::join(ranks, ", "));
    throw TimeoutError(broken_);
  }

  LinkGroup group_;
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;  // receives, then sends that are not detached
  std::size_t receives_ = 0;
  std::vector<int> ranks_;
  int pending_ = 0;
  std::list<Detached> detached_;
  std::list<Detached> packed_;  // of the exchange that is under way
  std::atomic<bool> aborted_ = false;
  std::string broken_;
  int culprit_ = -1;
};

}  // namespace

bool can_link_by_mpi() {
  const std::lock_guard lock(mpi_lock());
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

std::unique_ptr<HostLinks> make_mpi_links(Bootstrap& bootstrap, const LinkGroup& group) {
  int rank = -1;
  if (can_link_by_mpi()) {
    const std::lock_guard lock(mpi_lock());
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  }
  std::vector<int> members;
  for (const std::string& text : bootstrap.all_gather(std::to_string(rank))) {
    members.push_back(
        static_cast<int>(env::parse_int(text, "rank in MPI_COMM_WORLD", -1, 1 << 24)));
  }
  if (std::find(members.begin(), members.end(), -1) != members.end()) {
    throw NotSupported(
        fmt::format("GANTRY_HOST_LINKS: mpi needs all ranks inside MPI_COMM_WORLD, but their ranks "
                    "there are {}",
                    fmt::join(members, ", ")));
  }
  const std::lock_guard lock(mpi_lock());
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, group.size, members.data(), &chosen), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, chosen, kTag, &comm), "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  return std::make_unique<MpiLinks>(group, comm);
}

}  // namespace gantry
