// The time of the first call of a function of jit::elementwise. The second run of this program
// finds the compiled function in a file.
//
// jit_load [device]
#include <chrono>
#include <cstdio>
#include <exception>

#include <gantry/gantry.hpp>

int main(int argc, char** argv) try {
  if (argc > 2) {
    std::fprintf(stderr, "usage: jit_load [device]\n");
    return 2;
  }
  using Clock = std::chrono::steady_clock;
  const gantry::Device device(argc > 1 ? argv[1] : "cuda:0");
  const gantry::Tensor x = gantry::ones({1024}, {.device = device});
  (void)x.add(x).sum().item();  // the device and its built-in kernels are ready
  const auto begin = Clock::now();
  const auto function = gantry::jit::elementwise(
      "template <typename T> T blend(T x, T y, T weight) { return x + weight * (y - x); }");
  const gantry::Tensor result = function(x, x, 0.25);
  if (device.is_cuda()) gantry::synchronize(device);
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - begin;
  const gantry::jit::Stats stats = gantry::jit::stats();
  std::printf("first call %.2f ms, %lld compiled, %lld loaded\n", elapsed.count(),
              static_cast<long long>(stats.compiled), static_cast<long long>(stats.loaded));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "jit_load: %s\n", error.what());
  return 2;
}
