// Host loops with the processor's fma instruction.
#pragma once

namespace gantry::kernels::host {

// Note [fma on the host]
// On a processor without an fma instruction, fma() calls the C library, which is exact and slow. So
// the code within run() is compiled again for processors with the instruction, whose vectors are
// also twice as long, and for processors with vectors of 64 bytes. All versions give the same bits,
// because the compiler does not contract * and + to fma by itself (-ffp-contract=off).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// True if with_fma() uses instructions that not every processor has: AVX2 and fma.
[[nodiscard]] inline bool has_fma() {
  static const bool has = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  return has;
}
[[nodiscard]] inline bool has_avx512() {
  static const bool has = has_fma() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}
template <class Run>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] void run_with_fma(const Run& run) {
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
  if (has_avx512()) {
    run_with_avx512(run);
  } else if (has_fma()) {
    run_with_fma(run);
  } else {
    run();
  }
}
#else
[[nodiscard]] constexpr bool has_fma() { return false; }
template <class Run>
void with_fma(const Run& run) {
  run();
}
#endif

}  // namespace gantry::kernels::host
