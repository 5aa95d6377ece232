// Counts what the calling thread allocates by `new`, in gantry too. For one source file of a test
// program: it replaces the operators.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace gantry::testing {

// Allocations of the calling thread so far.
inline thread_local std::uint64_t allocations = 0;

}  // namespace gantry::testing

// Exported, else the libraries keep their own.
[[gnu::visibility("default")]] void* operator new(std::size_t bytes) {
  ++gantry::testing::allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::visibility("default")]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::visibility("default")]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

// Skips the test where the libraries do not use the operators above.
#define GANTRY_REQUIRE_COUNTED_NEW()                                                         \
  if (dlsym(RTLD_DEFAULT, "_Znwm") !=                                                        \
      reinterpret_cast<void*>(static_cast<void* (*)(std::size_t)>(&::operator new))) {       \
    GTEST_SKIP() << "the allocations of libraries do not reach this program's operator new"; \
  }                                                                                          \
  static_assert(true)
