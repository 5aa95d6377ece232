// A program as a user writes one: three places allocate until memory is short. It prints the text
// of the error and, for each place, the line that allocates; then it saves a snapshot.
//
//   profiled_program FOLDER    writes FOLDER/run.json and FOLDER/run.html
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <vector>

#include <gantry/gantry.hpp>

namespace {

constexpr std::int64_t kMib = 1 << 20;
constexpr std::size_t kLimit = 64 * kMib;

constexpr int kForwardLine = __LINE__ + 3;
constexpr int kForwardMib = 4;
[[gnu::noinline]] gantry::Tensor layer_forward(const gantry::Tensor& input) {
  gantry::Tensor output = gantry::zeros({kForwardMib * kMib / 4}, input.device());
  output.add_(1.0);
  return output;
}

// Small enough to be inlined into its caller.
constexpr int kGradientLine = __LINE__ + 2;
inline gantry::Tensor make_gradient(const gantry::Tensor& output) {
  return gantry::empty_like(output);
}
[[gnu::noinline]] gantry::Tensor layer_backward(const gantry::Tensor& output) {
  gantry::Tensor gradient = make_gradient(output);
  gradient.copy_(output);
  return gradient;
}

// The C++ library's functions lie between this one and gantry.
constexpr int kHookLine = __LINE__ + 3;
[[gnu::noinline]] gantry::Tensor apply_hook(const gantry::Tensor& tensor) {
  const std::function<gantry::Tensor(const gantry::Tensor&)> hook = &gantry::Tensor::clone;
  gantry::Tensor copy = hook(tensor);
  return copy;
}

void train(std::vector<gantry::Tensor>& kept) {
  const gantry::Device device = gantry::Device::cuda(0);
  gantry::Tensor input = gantry::ones({1}, device);
  kept.push_back(apply_hook(layer_backward(layer_forward(input))));
  for (;;) {
    kept.push_back(layer_forward(input));
    if (kept.size() % 3 == 0) kept.push_back(layer_backward(kept.back()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  const gantry::Device device = gantry::Device::cuda(0);
  const auto total = gantry::device_properties(device).total_memory;
  gantry::memory::set_fraction(static_cast<double>(kLimit) / static_cast<double>(total), device);
  gantry::memory::record_history();
  std::vector<gantry::Tensor> kept;
  try {
    train(kept);
  } catch (const gantry::OutOfMemoryError& error) {
    std::cout << error.what() << "\n";
  }
  std::cout << "layer_forward " << kForwardLine << "\nmake_gradient " << kGradientLine
            << "\napply_hook " << kHookLine << "\n";
  gantry::memory::save_snapshot(folder / "run.json");
  gantry::memory::save_snapshot(folder / "run.html");
  return 0;
}
