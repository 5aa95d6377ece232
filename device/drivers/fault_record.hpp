// Index faults: out of the records that kernels write, and as text.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

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

/// "gather on cuda:1: index 5 is out of bounds for dimension 0 with size 3".
[[nodiscard]] inline std::string fault_text(const FaultRecord& fault, int device) {
  const std::string where =
      fault.op == nullptr ? std::string() : fmt::format("{} on cuda:{}: ", fault.op, device);
  return fmt::format("{}index {} is out of bounds for dimension {} with size {}", where,
                     fault.index, fault.dim, fault.size);
}

}  // namespace gantry
