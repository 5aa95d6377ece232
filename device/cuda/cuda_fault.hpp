#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry::cuda {

/// Throws IndexError if a kernel of `device` met an index out of range, and clears the record.
void raise_fault(int device);

/// True if any device has a fault to raise: a few loads, no lock.
[[nodiscard]] bool any_fault() noexcept;

}  // namespace gantry::cuda
