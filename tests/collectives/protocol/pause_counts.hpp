// How often simulated kernels have polled in vain.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "collectives/protocol/signal.hpp"
#include "collectives/sim/schedule.hpp"

namespace gantry::protocol {

/// Counts the pauses between polls of up to 8 threads that run kernels, as long as it exists. One
/// object at a time.
class PauseCounts {
 public:
  PauseCounts() {
    for (std::atomic<unsigned>& count : counts_) count = 0;
    schedule::set_pause_hook([] {
      if (rank_ >= 0) ++counts_[static_cast<std::size_t>(rank_)];
    });
  }
  ~PauseCounts() { schedule::set_pause_hook(nullptr); }
  PauseCounts(const PauseCounts&) = delete;
  PauseCounts& operator=(const PauseCounts&) = delete;

  /// Counts the pauses of the calling thread as pauses of `rank`.
  static void begin(int rank) { rank_ = rank; }
  /// Returns when `rank` has checked what it waits for at least once more, beside its polls.
  static void await_check(int rank) {
    const std::atomic<unsigned>& count = counts_[static_cast<std::size_t>(rank)];
    const unsigned before = count;
    while (count - before < 2 * kPollsPerCheck) std::this_thread::yield();
  }

 private:
  inline static thread_local int rank_ = -1;
  inline static std::array<std::atomic<unsigned>, 8> counts_{};
};

}  // namespace gantry::protocol
