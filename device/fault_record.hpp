// Takes index faults out of the records that kernels write.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The fault in `record`, which is free for the next one then; nothing if there is none. Of several
/// threads that synchronize at once, one gets it.
[[nodiscard]] inline std::optional<FaultRecord> take_fault(FaultRecord& record) {
  const std::atomic_ref raised(record.raised);
  std::uint32_t state = raised.load(std::memory_order_relaxed);
  if (state != FaultRecord::kRaised ||
      !raised.compare_exchange_strong(state, FaultRecord::kWriting, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
    return std::nullopt;
  }
  // Without `raised`, which kernels look at meanwhile.
  const FaultRecord fault{.raised = FaultRecord::kRaised,
                          .dim = record.dim,
                          .index = record.index,
                          .size = record.size,
                          .op = record.op};
  // The next kernel writes after this read.
  raised.store(FaultRecord::kNone, std::memory_order_release);
  return fault;
}

}  // namespace gantry
