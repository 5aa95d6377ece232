// Instructions that host kernels may use.
#pragma once

#include <cstdint>

namespace gantry::kernels::host {

enum class Capability : std::uint8_t {
  baseline,
  avx2,    // AVX2 and fma
  avx512,  // those, and the F, BW, DQ and VL parts of AVX-512
  avx512_bf16,
};

// The most that this processor has.
[[nodiscard]] Capability processor_capability();

// The most that this processor has and GANTRY_CPU_CAPABILITY permits, found at the first call.
// Throws: InvalidArgument if the variable has another value.
[[nodiscard]] Capability capability();

}  // namespace gantry::kernels::host
