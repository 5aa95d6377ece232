// A rank that agrees with all others on the block sizes, and leaves before it can see that others
// disagree. GPUs run this order by chance.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/collectives/communicator.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/sim/schedule.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/scheduled.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

constexpr int kRanks = 4;
constexpr int kQuickRank = 2;
constexpr int kBlocks = 32;  // of every operation with unequal counts

// Schedules the kernels of one uneven operation. In every block the quick rank comes last, when all
// others wait for it. It signals its entry and reads theirs before they go on.
class QuickRank {
 public:
  QuickRank() {
    for (auto& polls : polls_) polls = 0;
    is_running_ = has_waited_ = false;
    signals_ = blocks_ = 0;
    protocol::schedule::set_hook(before_signal);
    protocol::schedule::set_pause_hook(before_poll);
  }
  ~QuickRank() {
    protocol::schedule::set_hook(nullptr);
    protocol::schedule::set_pause_hook(nullptr);
  }
  QuickRank(const QuickRank&) = delete;
  QuickRank& operator=(const QuickRank&) = delete;

  // The kernels of `stream` are those of `rank` from now on.
  static void name(const Stream& stream, int rank) {
    driver().launch_host_function(
        stream.native(),
        [](void* number) { own_rank_ = static_cast<int>(reinterpret_cast<std::intptr_t>(number)); },
        reinterpret_cast<void*>(static_cast<std::intptr_t>(rank)));
  }
  // Blocks in which the quick rank read the entries of all others.
  [[nodiscard]] static int blocks() { return blocks_; }

 private:
  static constexpr int kPeers = kRanks - 1;
  static constexpr int kEntries = 2 * kPeers;             // signalled and read
  static constexpr int kSignals = kEntries + 3 * kPeers;  // and one chunk, and all: full and empty
  static constexpr std::uint64_t kPollsOfAWaitingRank = 200;

  static void before_signal() {
    if (own_rank_ != kQuickRank) {
      while (own_rank_ >= 0 && is_running_) std::this_thread::yield();
      return;
    }
    if (has_waited_) return;
    const int at = signals_++ % kSignals;
    if (at == 0) {
      await_others();
      is_running_ = true;
    } else if (at == kEntries) {
      is_running_ = false;
      ++blocks_;
    }
  }
  static void before_poll() {
    if (own_rank_ < 0) return;
    if (own_rank_ == kQuickRank) {
      has_waited_ = true;  // the schedule has failed; the test sees too few blocks
      is_running_ = false;
    }
    ++polls_[static_cast<std::size_t>(own_rank_)];
  }
  static void await_others() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (rank == kQuickRank) continue;
      const std::uint64_t end = polls_[rank] + kPollsOfAWaitingRank;
      while (polls_[rank] < end) std::this_thread::yield();
    }
  }

  static thread_local int own_rank_;
  static inline std::array<std::atomic<std::uint64_t>, kRanks> polls_{};
  static inline std::atomic<bool> is_running_ = false;
  static inline std::atomic<bool> has_waited_ = false;
  static inline std::atomic<int> signals_ = 0;
  static inline std::atomic<int> blocks_ = 0;
};
thread_local int QuickRank::own_rank_ = -1;

class UnevenMismatchTest : public testing::LocalGroupTest {
 protected:
  static void expect_mismatch_on_all() {
    on_ranks(kRanks, [](CollectiveSuite&, Communicator& group) {
      QuickRank::name(Stream::current(group.device()), group.rank());
      std::vector<std::int64_t> sends(kRanks, 4);
      const std::vector<std::int64_t> receives(kRanks, 4);
      if (group.rank() == 3) sends = {8, 6, 4, 4};
      std::int64_t sent = 0;
      for (const std::int64_t count : sends) sent += count;
      const Tensor input = zeros({sent}, {.device = group.device()});
      Tensor output = zeros({4 * kRanks}, {.device = group.device()});
      const Work work = group.all_to_all(output, input, receives, sends);
      expect_throws<CollectiveMismatch>(
          [&] { work.synchronize(); },
          "rank 3 sends 8 elements to rank 0, which expects 4, in all_to_all");
    });
  }
};

TEST_F(UnevenMismatchTest, ARankThatAgreesWithAllAndEndsFirstThrowsToo) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(kRanks);
  if (testing::is_scheduled()) GTEST_SKIP() << "the test schedules the kernels itself";
  // A machine with much else to do may run the kernels in another order. All ranks throw then, too.
  constexpr int kAttempts = 10;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const QuickRank quick;
    expect_mismatch_on_all();
    if (QuickRank::blocks() == kBlocks) return;
  }
  ADD_FAILURE() << "no attempt had the order of the test";
}

}  // namespace
}  // namespace gantry
