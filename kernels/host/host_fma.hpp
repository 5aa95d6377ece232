// Host loops with the processor's fma instruction.
#pragma once

#include "kernels/host/capability.hpp"

namespace gantry::kernels::host {

// Note [fma on the host]
// On a processor without an fma instruction, fma() calls the C library, which is exact and slow. So
// the code within run() is compiled again for processors with the instruction, whose vectors are
// also twice as long, and for processors with vectors of 64 bytes. All versions give the same bits,
// because the compiler does not contract * and + to fma by itself (-ffp-contract=off).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
template <class Run>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] void run_with_avx2(const Run& run) {
  run();
}
template <class Run>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512"), gnu::flatten,
  gnu::noinline]] void
run_with_avx512(const Run& run) {
  run();
}
template <class Run>
void with_fma(const Run& run) {
  switch (capability()) {
    case Capability::avx512_bf16:
    case Capability::avx512:
      return run_with_avx512(run);
    case Capability::avx2:
      return run_with_avx2(run);
    case Capability::baseline:
      return run();
  }
}
#else
template <class Run>
void with_fma(const Run& run) {
  run();
}
#endif

}  // namespace gantry::kernels::host
