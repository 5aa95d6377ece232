#pragma once

namespace gantry {

/// True if this build is compiled with AddressSanitizer.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

}  // namespace gantry
