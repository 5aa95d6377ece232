// The libtorch twin of the recipe mlp_restart: the same network, data and steps, by autograd and
// torch::optim. Arguments: steps, rows, width of the hidden layer. It trains twice, and measures
// the second time.
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>

namespace {

float train(const torch::Device& device, std::int64_t steps, std::int64_t rows,
            std::int64_t width) {
  torch::nn::Sequential model(torch::nn::Linear(16, width), torch::nn::ReLU(),
                              torch::nn::Linear(width, 4));
  model->to(device);
  {
    const torch::NoGradGuard guard;
    for (torch::Tensor& parameter : model->parameters()) {
      if (parameter.dim() == 1) {
        parameter.zero_();
      } else {
        parameter.normal_(0, 1 / std::sqrt(static_cast<double>(parameter.size(1))));
      }
    }
  }
  torch::optim::SGD optimiser(
      model->parameters(),
      torch::optim::SGDOptions(19.2 / static_cast<double>(width)).momentum(0.9));
  torch::Tensor loss;
  for (std::int64_t step = 0; step < steps; ++step) {
    const torch::Tensor x = torch::randn({rows, 16}, device);
    const torch::Tensor target = x.view({rows, 4, 4}).sum(2).tanh();
    optimiser.zero_grad();
    loss = torch::mse_loss(model->forward(x), target);
    loss.backward();
    optimiser.step();
  }
  return loss.item<float>();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "expected the steps, the rows and the width\n";
    return 2;
  }
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  const std::int64_t steps = std::stoll(argv[1]);
  const std::int64_t rows = std::stoll(argv[2]);
  const std::int64_t width = std::stoll(argv[3]);
  torch::manual_seed(1);
  train(device, steps, rows, width);
  const auto start = std::chrono::steady_clock::now();
  const float loss = train(device, steps, rows, width);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "loss " << loss << "\nseconds: " << seconds.count() << "\n";
}
