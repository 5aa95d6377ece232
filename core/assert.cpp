#include "core/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace gantry {

// The state of the process is unknown, so nothing of the library is called.
void fail_assertion(const char* condition, const char* text, const char* file, int line) noexcept {
  std::fprintf(stderr, "gantry: broken invariant: %s (%s) at %s:%d\n", text, condition, file, line);
  std::abort();
}

}  // namespace gantry
