// Counts of the JIT of this process.
#pragma once

#include <atomic>
#include <cstdint>

namespace gantry::kernels::jit {

struct Counts {
  std::atomic<std::int64_t> compiled{0};  // runs of a compiler
  std::atomic<std::int64_t> loaded{0};    // programs from files
  std::atomic<std::int64_t> refused{0};   // files that did not count
};

[[nodiscard]] Counts& count();

}  // namespace gantry::kernels::jit
