#include "kernels/host/capability.hpp"

namespace gantry::kernels::host {

Capability processor_capability() {
  if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("avx2")) {
    return Capability::baseline;
  }
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!has_avx512) return Capability::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Capability::avx512_bf16 : Capability::avx512;
}

}  // namespace gantry::kernels::host
