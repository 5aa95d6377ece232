// Include it to run a test binary on backend native.
#pragma once

#include <cstdlib>

namespace gantry::testing {

// The variable is read at the first use of the allocator, which is after main() began.
inline const bool kNativeBackend = setenv("GANTRY_ALLOC_CONF", "backend:native", 1) == 0;

}  // namespace gantry::testing
