// The text of an index fault.
#pragma once

#include <string>

#include <fmt/format.h>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// "gather on cuda:1: index 5 is out of bounds for dimension 0 with size 3".
[[nodiscard]] inline std::string fault_text(const FaultRecord& fault, int device) {
  const std::string where =
      fault.op == nullptr ? std::string() : fmt::format("{} on cuda:{}: ", fault.op, device);
  return fmt::format("{}index {} is out of bounds for dimension {} with size {}", where,
                     fault.index, fault.dim, fault.size);
}

}  // namespace gantry
