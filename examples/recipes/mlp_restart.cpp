// A network with one hidden layer, trained by all ranks, that continues after a failure.
//
// Run: glaunch --max-restarts 3 --restart-delay 0 mlp_restart
// Without a GPU: export GANTRY_SIM_DEVICES=4. Kill one of its processes with kill -9 while it runs.
// Arguments: steps, rows of a rank, width of the hidden layer.
//
// The checkpoint is mlp.safetensors in the current folder. At the end the ranks train once more
// without a checkpoint: the weights have the same bits, also after a failure.
#include <gantry/gantry.hpp>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace gantry;

const std::vector<std::string> kNames{"w1", "b1", "w2", "b2"};
std::int64_t rows = 32, width = 64;

// Weights, and their momentum: everything that the next step depends on.
NamedTensors initial(const Device& device) {
  Generator generator(device);
  generator.manual_seed(1);
  NamedTensors model{{"w1", randn({16, width}, device, generator).mul(0.25)},
                     {"b1", zeros({width}, device)},
                     {"w2", randn({width, 4}, device, generator).div(std::sqrt(width))},
                     {"b2", zeros({4}, device)}};
  for (const std::string& name : kNames) model["momentum." + name] = zeros_like(model[name]);
  return model;
}

// 1. One step on the rows of this rank. The gradients are averaged over all ranks in one transfer.
//    Returns the loss of the rank, on the device.
Tensor train_step(const Communicator& world, NamedTensors& model, std::int64_t step) {
  Generator generator(world.device());
  generator.manual_seed(static_cast<std::uint64_t>(1000 * step + world.rank()));
  const Tensor x = randn({rows, 16}, world.device(), generator);
  const Tensor target = x.view({rows, 4, 4}).sum(2).tanh();

  const Tensor hidden = addmm_activation(model["b1"], x, model["w1"], Activation::relu);
  const Tensor error = addmm(model["b2"], hidden, model["w2"]).sub_(target);
  const Tensor d_out = error * (2.0 / static_cast<double>(error.numel()));
  const Tensor d_hidden = matmul(d_out, model["w2"].t()).mul_(hidden > 0);
  const std::vector<Tensor> gradients{matmul(x.t(), d_hidden), d_hidden.sum(0),
                                      matmul(hidden.t(), d_out), d_out.sum(0)};
  world.all_reduce_coalesced(gradients, ReduceOp::avg);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const Tensor& momentum = model["momentum." + kNames[i]];
    momentum.mul_(0.9).add_(gradients[i]);
    model[kNames[i]].sub_(momentum, 19.2 / static_cast<double>(width));
  }
  return error.square().mean();
}

// 2. Trains from the checkpoint on, if there is one. Every rank reads it before the first step, and
//    rank 0 writes a newer one only after a step of all ranks.
NamedTensors train(const Communicator& world, std::int64_t steps, const std::string& path) {
  NamedTensors model = initial(world.device());
  std::int64_t step = 0;
  if (!path.empty() && std::filesystem::exists(path)) {
    auto [tensors, metadata] = load_safetensors(path, world.device());
    model = tensors;
    step = std::stoll(metadata.at("step"));
    if (world.rank() == 0) std::cout << "continues after step " << step << std::endl;
  }
  while (step < steps) {
    const Tensor loss = train_step(world, model, step);
    ++step;
    if (path.empty() || step % 20 != 0) continue;
    world.all_reduce(loss, ReduceOp::avg);
    if (world.rank() == 0) {  // the file is replaced as a whole
      save_safetensors(path, model, {{"step", std::to_string(step)}});
      if (step % 40 == 0) {
        std::cout << "step " << step << ", loss " << loss.item<float>() << std::endl;
      }
    }
  }
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t steps = argc > 1 ? std::stoll(argv[1]) : 160;
  if (argc > 2) rows = std::stoll(argv[2]);
  if (argc > 3) width = std::stoll(argv[3]);
  const std::string path = "mlp.safetensors";
  const Communicator world = Communicator::world();
  const NamedTensors model = train(world, steps, path);

  // 3. The same steps without a checkpoint, whose time is measured.
  const auto start = std::chrono::steady_clock::now();
  const NamedTensors again = train(world, steps, "");
  synchronize(world.device());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  bool is_equal = true;
  for (const auto& [name, tensor] : again) is_equal = is_equal && equal(model.at(name), tensor);
  if (world.rank() == 0) {
    std::filesystem::remove(path);
    if (argc > 3) std::cout << "seconds: " << seconds.count() << "\n";
    std::cout << "equal to an undisturbed run: " << is_equal << std::endl;
  }
  return is_equal ? 0 : 1;
}
// Output:
// [0] step 40, loss 0.144807
// [0] step 80, loss 0.118169
// [0] step 120, loss 0.0861451
// [0] step 160, loss 0.0615066
// [0] equal to an undisturbed run: 1
