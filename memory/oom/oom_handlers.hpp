// The functions of add_oom_handler().
#pragma once

#include <cstddef>

namespace gantry::memory {

/// Calls the functions of the program that may free memory of `device`; true if an allocation of
/// `bytes` should search again. False inside such a function. The caller holds no lock.
[[nodiscard]] bool run_oom_handlers(int device, std::size_t bytes) noexcept;

}  // namespace gantry::memory
