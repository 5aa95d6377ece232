// Whether this program checks its own memory accesses, which makes it many times slower.
#pragma once

namespace gantry::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace gantry::testing
