// Invariants of gantry's own code.
#pragma once

namespace gantry {

/// Ends the process. Says the broken condition, what it means, and its place.
[[noreturn]] void fail_assertion(const char* condition, const char* text, const char* file,
                                 int line) noexcept;

}  // namespace gantry

/// Ends the process if an invariant does not hold; `text` says what is broken. Wrong arguments of
/// the program are errors instead. With NDEBUG, as in Release builds, nothing is evaluated.
#ifdef NDEBUG
#define GANTRY_ASSERT(condition, text) static_cast<void>(sizeof(!(condition)))
#else
#define GANTRY_ASSERT(condition, text) \
  ((condition) ? void() : ::gantry::fail_assertion(#condition, text, __FILE__, __LINE__))
#endif
