// The words through which kernels and the host signal each other during a collective.
#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

// Why an operation ended without a result.
enum class OperationFault : std::uint32_t {
  none = 0,
  aborted = 1,   // the host stopped the kernels: a rank was lost, was late, or aborted
  mismatch = 2,  // `peer` made another call
  overlap = 3,   // another operation of the same rank was running
};

// Packs a fault with the operation's sequence number on the device, or 0. Several blocks may report
// one fault, and a graph may replay one call: the number tells these apart.
GANTRY_HD constexpr std::uint32_t fault_word(OperationFault fault, std::uint32_t sequence) {
  return sequence << 2 | static_cast<std::uint32_t>(fault);
}
constexpr OperationFault fault_of(std::uint32_t word) {
  return static_cast<OperationFault>(word & 3);
}
// Marks the fault words as locked by a thread, see Note [Fault words]. It is not a fault.
inline constexpr std::uint32_t kFaultClaimed = ~std::uint32_t{3};
static_assert(fault_of(kFaultClaimed) == OperationFault::none);
constexpr bool same_operation(std::uint32_t a, std::uint32_t b) {
  return a >> 2 != 0 && a >> 2 == b >> 2;
}

// Packs a call's number with its run above it, since graphs replay calls. `run` is any 23-bit
// number that differs from the previous run's.
GANTRY_HD constexpr std::uint64_t run_word(std::uint64_t call, std::uint64_t run) {
  return run << 41 | call;
}
constexpr std::uint64_t call_of(std::uint64_t run_word) { return run_word << 23 >> 23; }

// One rank's words, in host memory that its device reads and writes and all local ranks map.
// Each half has one writer. The shared memory stays readable after the rank's death.
struct alignas(64) DeviceWords {
  // Host to kernels: if not 0, every waiting kernel of the rank returns.
  std::uint32_t abort = 0;
  std::uint32_t reserved = 0;

  // Kernels to host: run_word() of the operation that started last, and that finished last.
  // Sends [0] and receives [1] have their own, since they run concurrently with collectives.
  alignas(64) std::uint64_t started = 0;
  std::uint64_t finished = 0;
  std::uint64_t message_started[2] = {};
  std::uint64_t message_finished[2] = {};
  // The first pending fault, see Note [Fault words].
  std::uint64_t fault_call = 0;
  std::int32_t fault_peer = -1;
  std::uint32_t fault = 0;  // fault_word()
};
static_assert(sizeof(DeviceWords) == 128);

}  // namespace gantry
