// Host access to the words in which kernels report faults.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>

#include "collectives/protocol/layout.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// A fault that a kernel reported.
struct ReportedFault {
  std::uint32_t word = 0;  // fault_word()
  std::uint64_t call = 0;
  std::int32_t peer = -1;  // -1: unknown

  OperationFault fault() const { return fault_of(word); }
};

// The fault words of one rank, see Note [Fault words].
// Thread safety: any thread may call every member, while kernels report faults.
class FaultWords {
 public:
  explicit FaultWords(DeviceWords& words) : words_(words) {}

  // True if a fault is pending; one load.
  bool has_fault() const noexcept { return is_fault(fault()); }

  // The pending fault, which stays pending.
  std::optional<ReportedFault> peek() const noexcept {
    const std::uint32_t word = fault();
    if (!is_fault(word)) return std::nullopt;
    const ReportedFault seen = read(word);
    // Another thread may have taken it, and a kernel may write the next one.
    if (fault() != word) return std::nullopt;
    return seen;
  }

  // Takes `seen`, a result of peek(). Returns false if another thread has taken it.
  bool take(const ReportedFault& seen) noexcept {
    if (!claim(seen.word)) return false;
    const ReportedFault taken = read(seen.word);
    const bool is_same = taken.call == seen.call && taken.peer == seen.peer;
    release(is_same ? 0 : taken.word);
    return is_same;
  }

  // Reports that `call` was lost. Replaces the pending fault, unless that is the loss of a message
  // or of an earlier call.
  void report_loss(std::uint64_t call) noexcept {
    std::uint32_t word = fault();
    // A kernel holds its claim for microseconds, unless its device has failed.
    for (int turns = 0; turns < kMostTurns && !(word != kFaultClaimed && claim(word)); ++turns) {
      sched_yield();
      word = fault();
    }
    const std::uint64_t waiting = read(word).call;
    const bool is_earlier = flight::is_message(waiting) || waiting <= call;
    if (fault_of(word) == OperationFault::aborted && is_earlier) return release(word);
    __atomic_store_n(&words_.fault_peer, -1, __ATOMIC_RELAXED);
    __atomic_store_n(&words_.fault_call, call, __ATOMIC_RELAXED);
    release(fault_word(OperationFault::aborted, 0));
  }

 private:
  static constexpr int kMostTurns = 100'000;

  static bool is_fault(std::uint32_t word) noexcept { return word != 0 && word != kFaultClaimed; }
  std::uint32_t fault() const noexcept { return __atomic_load_n(&words_.fault, __ATOMIC_ACQUIRE); }
  ReportedFault read(std::uint32_t word) const noexcept {
    return {word, __atomic_load_n(&words_.fault_call, __ATOMIC_ACQUIRE),
            __atomic_load_n(&words_.fault_peer, __ATOMIC_ACQUIRE)};
  }
  bool claim(std::uint32_t word) noexcept {
    return __atomic_compare_exchange_n(&words_.fault, &word, kFaultClaimed, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
  }
  void release(std::uint32_t word) noexcept {
    __atomic_store_n(&words_.fault, word, __ATOMIC_RELEASE);
  }

  DeviceWords& words_;
};

}  // namespace gantry
