#pragma once

#include <cstdint>

#include "core/stacks/call_site.hpp"

namespace gantry::sanitizer {

/// The number of the program's call that is under way. A call from inside the C++ library, such as
/// the destructor of a shared_ptr, has the program's function a few functions further out.
[[nodiscard]] inline std::uint32_t captured_call_site() noexcept {
  constexpr std::size_t kFunctions = 4;
  return stacks::intern_call_stack(stacks::StackDepth::call_site, kFunctions);
}

}  // namespace gantry::sanitizer
