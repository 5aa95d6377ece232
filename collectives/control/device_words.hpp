// The words through which kernels and host talk during a collective.
#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

// Why an operation ended without a result.
enum class OperationFault : std::uint32_t {
  none = 0,
  aborted = 1,   // the host told kernels to give up: a rank was lost, came too late, or aborted
  mismatch = 2,  // `peer` made another call
  overlap = 3,   // another operation of the same rank was running
};

// A fault with the number of the operation on the device, or 0: several blocks may report the same
// one, and a graph may run the same call again.
GANTRY_HD constexpr std::uint32_t fault_word(OperationFault fault, std::uint32_t sequence) {
  return sequence << 2 | static_cast<std::uint32_t>(fault);
}
constexpr OperationFault fault_of(std::uint32_t word) {
  return static_cast<OperationFault>(word & 3);
}
// Stands in place of a fault while a thread writes or takes it, see Note [Fault words]; no fault.
inline constexpr std::uint32_t kFaultClaimed = ~std::uint32_t{3};
static_assert(fault_of(kFaultClaimed) == OperationFault::none);
constexpr bool same_operation(std::uint32_t a, std::uint32_t b) {
  return a >> 2 != 0 && a >> 2 == b >> 2;
}

// A call's number and, above it, which run of it this is: graphs run one again. `run` is any number
// that is another one the next time, in 23 bits.
GANTRY_HD constexpr std::uint64_t run_word(std::uint64_t call, std::uint64_t run) {
  return run << 41 | call;
}
constexpr std::uint64_t call_of(std::uint64_t run_word) { return run_word << 23 >> 23; }

// One rank's words, in host memory that its device reads and writes and all local ranks map. Each
// half has one writer. Lives in shared memory, so that it can be read after the rank is gone.
struct alignas(64) DeviceWords {
  // Host to kernels: not 0 makes every waiting kernel of the rank return.
  std::uint32_t abort = 0;
  std::uint32_t reserved = 0;

  // Kernels to host: run_word() of the operation that began, and that ended, last; likewise of
  // sends [0] and receives [1], which run beside the others.
  alignas(64) std::uint64_t started = 0;
  std::uint64_t finished = 0;
  std::uint64_t message_started[2] = {};
  std::uint64_t message_finished[2] = {};
  // The first fault that nobody has taken yet, see Note [Fault words].
  std::uint64_t fault_call = 0;
  std::int32_t fault_peer = -1;
  std::uint32_t fault = 0;  // fault_word()
};
static_assert(sizeof(DeviceWords) == 128);

}  // namespace gantry
