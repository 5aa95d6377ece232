// Calls a JIT function on a tensor and prints what the JIT did:
//
// jit_worker [device]: "result <sum> compiled <n> loaded <n> refused <n>", or the error.
#include <cstdio>
#include <iostream>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/jit.hpp>
#include <gantry/tensor/reductions.hpp>

int main(int argc, char** argv) {
  try {
    const gantry::Device device(argc > 1 ? argv[1] : "cpu");
    const auto function = gantry::jit::elementwise(
        "template <typename T> T worker(T x, T y) { return x * y + T(1); }");
    const gantry::Tensor x = gantry::arange(100, {.dtype = gantry::f64, .device = device});
    const double sum = function(x, 2).sum().item<double>();
    const gantry::jit::Stats stats = gantry::jit::stats();
    std::cout << "result " << sum << " compiled " << stats.compiled << " loaded " << stats.loaded
              << " refused " << stats.refused_files << "\n";
  } catch (const gantry::NotSupported& error) {
    std::cout << "NotSupported " << error.what() << "\n";
    return 3;
  } catch (const gantry::Error& error) {
    std::cout << "Error " << error.what() << "\n";
    return 4;
  }
  return 0;
}
