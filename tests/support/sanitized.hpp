// Whether this program checks its own memory accesses, which makes it many times slower.
#pragma once

namespace gantry::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsAddressSanitized = true;
#else
inline constexpr bool kIsAddressSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

inline constexpr bool kIsSanitized = kIsAddressSanitized || kIsThreadSanitized;

}  // namespace gantry::testing
