// The libtorch twin of the recipe sharded_optimiser on one rank: the same least squares, by
// autograd and Adam. Argument: the factor of all sizes. It measures steps 20 to 39.
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "expected the factor of the sizes\n";
    return 2;
  }
  const std::int64_t scale = std::stoll(argv[1]);
  const std::int64_t rows = 16 * scale, in = 24 * scale, hidden = 33 * scale, out = 5 * scale;
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  torch::manual_seed(3);
  const double deviation = 0.1 / std::sqrt(static_cast<double>(scale));
  const torch::Tensor first = torch::randn({in, hidden}, device).mul_(deviation).requires_grad_();
  const torch::Tensor second = torch::randn({hidden, out}, device).mul_(deviation).requires_grad_();
  torch::optim::Adam optimiser({first, second}, torch::optim::AdamOptions(0.01));
  torch::Tensor loss;
  auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < 40; ++step) {
    if (step == 20) {
      (void)loss.item<float>();  // the device is idle
      start = std::chrono::steady_clock::now();
    }
    const torch::Tensor x = torch::randn({rows, in}, device);
    optimiser.zero_grad();
    const torch::Tensor error = torch::mm(torch::mm(x, first), second) - x.slice(1, 0, out);
    const torch::Tensor squares = error.square();
    loss = squares.detach().mean();
    (squares.sum() * 0.5).backward();
    optimiser.step();
  }
  if (device.is_cuda()) torch::cuda::synchronize();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "loss " << loss.item<float>() << "\nseconds: " << seconds.count() << "\n";
}
