#include "collectives/control_block.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry {

namespace {

constexpr int kDescriptorRing = 8;
constexpr auto kLivenessPeriod = std::chrono::milliseconds(5);

enum State : std::uint32_t { running, finished, aborted };

std::string_view kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::barrier:
      return "barrier";
  }
  __builtin_unreachable();
}

// Marks this rank as a victim in glaunch's report, so that the rank that failed first is blamed.
void tell_launcher(const std::string& message) {
  const auto path = env::get("GANTRY_ERROR_FILE");
  if (!path || path->empty()) return;
  std::ofstream(*path) << R"({"kind":"peer_lost","message":")" << message << "\"}\n";
}

// What each rank tells the others so that they can watch it and open rank 0's memory.
struct Introduction {
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t start_time = 0;
};

}  // namespace

std::string Descriptor::str() const {
  switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter:
      return fmt::format("{} {} {}[{}]{}", kind_name(kind), name(op), name(dtype), count,
                         reproducible != 0 ? "" : " reproducible=false");
    case CollectiveKind::broadcast:
      return fmt::format("broadcast {}[{}] root={}", name(dtype), count, root);
    case CollectiveKind::all_gather:
      return fmt::format("all_gather {}[{}]", name(dtype), count);
    case CollectiveKind::barrier:
      return "barrier";
  }
  __builtin_unreachable();
}

struct alignas(64) ControlBlock::Slot {
  std::atomic<std::uint64_t> fence{0};
  std::atomic<std::uint32_t> state{running};
  Descriptor ring[kDescriptorRing];
};

struct ControlBlock::Layout {
  // Behind it lie size_ slots.
  alignas(64) std::atomic<std::int32_t> culprit{-1};

  Slot& slot(int rank) { return reinterpret_cast<Slot*>(this + 1)[rank]; }
};

ControlBlock::ControlBlock(Bootstrap& bootstrap, int rank, int size,
                           std::chrono::milliseconds timeout)
    : bootstrap_(bootstrap),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      bytes_(sizeof(Layout) + sizeof(Slot) * static_cast<std::size_t>(size)) {
  Introduction mine;
  mine.pid = this_process().pid;
  mine.start_time = this_process().start_time;
  if (rank == 0) {
    mine.descriptor = memfd_create("gantry-control", MFD_CLOEXEC);
    if (mine.descriptor < 0 || ftruncate(mine.descriptor, static_cast<off_t>(bytes_)) != 0) {
      throw Error(fmt::format("Failed creating the communicator's control block: {}",
                              std::strerror(errno)));
    }
  }
  std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  const std::vector<std::string> all = bootstrap.all_gather(bytes);
  std::vector<Introduction> peers(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() != sizeof(Introduction)) {
      throw Error(fmt::format("Communicator::world: rank {} runs another version of gantry", i));
    }
    std::memcpy(&peers[i], all[i].data(), sizeof(Introduction));
  }
  int descriptor = mine.descriptor;
  if (rank != 0) {
    // Needs only the same user, leaves no name behind in /dev/shm if a rank is killed.
    const std::string path = fmt::format("/proc/{}/fd/{}", peers[0].pid, peers[0].descriptor);
    descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  void* mapped = descriptor < 0
                     ? MAP_FAILED
                     : mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  bootstrap.all_gather("mapped");  // Rank 0's descriptor must stay open until here.
  if (descriptor >= 0) close(descriptor);
  if (mapped == MAP_FAILED) {
    throw Error(fmt::format("Failed mapping the communicator's control block of rank 0: {}",
                            std::strerror(error)));
  }
  shared_ = static_cast<Layout*>(mapped);
  if (rank == 0) {
    new (shared_) Layout;
    for (int i = 0; i < size; ++i) new (&shared_->slot(i)) Slot;
  }
  bootstrap.all_gather("ready");
  for (int i = 0; i < size; ++i) {
    const Introduction& peer = peers[static_cast<std::size_t>(i)];
    processes_.emplace_back(ProcessStamp{peer.pid, peer.start_time});
  }
}

ControlBlock::~ControlBlock() {
  if (shared_ != nullptr) munmap(shared_, bytes_);
}

void ControlBlock::describe(const Descriptor& descriptor) {
  shared_->slot(rank_).ring[descriptor.sequence % kDescriptorRing] = descriptor;
}

std::uint64_t ControlBlock::announce() {
  shared_->slot(rank_).fence.store(++fence_, std::memory_order_release);
  return fence_;
}

void ControlBlock::lose(int rank, const char* how) const {
  std::int32_t nobody = -1;
  shared_->culprit.compare_exchange_strong(nobody, rank);
  const std::string message =
      fmt::format("rank {} {}; the communicator of {} ranks is unusable", rank, how, size_);
  tell_launcher(message);
  throw PeerLostError(message, rank);
}

void ControlBlock::check_peers(std::uint64_t fence) const {
  if (const int culprit = shared_->culprit.load(std::memory_order_acquire); culprit >= 0) {
    const bool on_purpose = shared_->slot(culprit).state.load(std::memory_order_acquire) == aborted;
    lose(culprit, on_purpose ? "aborted" : "was lost");
  }
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    switch (static_cast<State>(shared_->slot(i).state.load(std::memory_order_acquire))) {
      case finished:
        // It completed its device work before it left; nothing is missing up to its last fence.
        if (shared_->slot(i).fence.load(std::memory_order_acquire) >= fence) continue;
        lose(i, "has left the job");
      case aborted:
        lose(i, "aborted");
      case running:
        break;
    }
    if (!processes_[static_cast<std::size_t>(i)].alive()) lose(i, "died");
  }
  if (const int lost = bootstrap_.lost_rank(); lost >= 0) lose(lost, "left the job");
}

bool ControlBlock::broken() const noexcept {
  return shared_->culprit.load(std::memory_order_acquire) >= 0;
}

void ControlBlock::require_intact() const {
  if (broken()) check_peers(fence_);
}

void ControlBlock::await(std::uint64_t fence) {
  require_intact();
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Clock::time_point next_check = start + kLivenessPeriod;
  int next = 0;
  for (std::uint64_t spins = 0;; ++spins) {
    while (next < size_ && shared_->slot(next).fence.load(std::memory_order_acquire) >= fence) {
      ++next;
    }
    if (next == size_) return;
    // A short spin serves ranks with a core each; yielding serves crowded machines.
    if (spins < 200) continue;
    if (spins < 20'000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (spins % 64 != 0) continue;
    const Clock::time_point now = Clock::now();
    if (now < next_check) continue;
    next_check = now + kLivenessPeriod;
    check_peers(fence);
    if (now - start > timeout_) {
      std::vector<int> missing;
      for (int i = 0; i < size_; ++i) {
        if (shared_->slot(i).fence.load(std::memory_order_acquire) < fence) missing.push_back(i);
      }
      abort();
      throw TimeoutError(
          fmt::format("collective: rank {} waited {} s, but rank(s) {} did not enter the operation "
                      "(GANTRY_COLL_TIMEOUT sets the deadline)",
                      rank_, std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(),
                      fmt::join(missing, ", ")));
    }
  }
}

void ControlBlock::verify(std::int64_t sequence) const {
  const Descriptor& reference = shared_->slot(0).ring[sequence % kDescriptorRing];
  for (int i = 1; i < size_; ++i) {
    const Descriptor& other = shared_->slot(i).ring[sequence % kDescriptorRing];
    if (other == reference) continue;
    throw CollectiveMismatch(fmt::format(
        "collective #{}: expected the same call on every rank, but rank 0 called {} and rank {} "
        "called {}",
        sequence, reference.str(), i, other.str()));
  }
}

void ControlBlock::abort() noexcept {
  shared_->slot(rank_).state.store(aborted, std::memory_order_release);
  std::int32_t nobody = -1;
  shared_->culprit.compare_exchange_strong(nobody, rank_);
}

void ControlBlock::finish(std::chrono::milliseconds patience) noexcept {
  std::uint32_t expected = running;
  shared_->slot(rank_).state.compare_exchange_strong(expected, finished);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int i = 0; i < size_; ++i) {
    while (i != rank_ && shared_->slot(i).state.load(std::memory_order_acquire) == running &&
           processes_[static_cast<std::size_t>(i)].alive() &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace gantry
