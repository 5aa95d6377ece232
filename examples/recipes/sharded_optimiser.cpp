// A sharded optimiser: each rank has the state of Adam for its part of the weights only.
//
// Run: glaunch sharded_optimiser    (without a GPU: export GANTRY_SIM_DEVICES=4)
// An argument, such as 128, multiplies all sizes, and times 20 more steps.
//
// reduce_scatter() of the gradients, an update of the own part, all_gather() of the weights: as
// many bytes as an all_reduce(), with the n-th part of the state and of the work. Sums are in rank
// order in all operations, so the weights have the bits of the step without shards.
#include <gantry/gantry.hpp>

#include <chrono>
#include <cmath>
#include <iostream>
#include <string>

namespace {

using namespace gantry;

// 1. Adam on any part of the weights.
class Adam {
 public:
  explicit Adam(const Tensor& weights)
      : first_(zeros_like(weights)), second_(zeros_like(weights)) {}
  void update(const Tensor& weights, const Tensor& gradient) {
    ++steps_;
    first_.mul_(0.9).add_(gradient, 0.1);
    second_.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    const Tensor root = second_.div(1 - std::pow(0.999, steps_)).sqrt_().add_(1e-8);
    weights.addcdiv_(first_, root, -0.01 / (1 - std::pow(0.9, steps_)));
  }
  std::size_t bytes() const { return first_.nbytes() + second_.nbytes(); }

 private:
  Tensor first_, second_;
  int steps_ = 0;
};

// 2. All weights are views of one tensor, whose size is a multiple of the number of ranks.
std::int64_t rows = 16, in = 24, hidden = 33, out = 5;

Tensor flat_zeros(const Communicator& group) {
  const std::int64_t n = in * hidden + hidden * out, ranks = group.size();
  return zeros({(n + ranks - 1) / ranks * ranks}, group.device());
}
Tensor first_matrix(const Tensor& flat) {
  return flat.narrow(0, 0, in * hidden).view({in, hidden});
}
Tensor second_matrix(const Tensor& flat) {
  return flat.narrow(0, in * hidden, hidden * out).view({hidden, out});
}

// The gradient of one rank: least squares on its own rows, through two matrices. Returns the loss.
Tensor backward(const Communicator& group, const Tensor& weights, const Tensor& gradient,
                std::int64_t step) {
  Generator generator(group.device());
  generator.manual_seed(static_cast<std::uint64_t>(100 * step + group.rank()));
  const Tensor x = randn({rows, in}, group.device(), generator);
  const Tensor between = matmul(x, first_matrix(weights));
  const Tensor error = matmul(between, second_matrix(weights)) - x.slice(1, 0, out);
  first_matrix(gradient).copy_(matmul(x.t(), matmul(error, second_matrix(weights).t())));
  second_matrix(gradient).copy_(matmul(between.t(), error));
  return error.square().mean();
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t scale = argc > 1 ? std::stoll(argv[1]) : 1;
  for (std::int64_t* size : {&rows, &in, &hidden, &out}) *size *= scale;
  const Communicator world = Communicator::world();
  const Tensor whole = flat_zeros(world), gradient = flat_zeros(world);
  Generator generator(world.device());
  generator.manual_seed(3);
  first_matrix(whole).normal_(0, 0.1 / std::sqrt(scale), generator);
  second_matrix(whole).normal_(0, 0.1 / std::sqrt(scale), generator);
  const Tensor sharded = whole.clone();

  // 3. The own part is a view of the weights: all_gather() sends it from there.
  const std::int64_t n = sharded.numel() / world.size();
  const Tensor part = sharded.narrow(0, n * world.rank(), n);
  const Tensor part_gradient = empty_like(part);
  Adam part_adam(part), whole_adam(whole);

  const auto sharded_step = [&](std::int64_t step) {
    const Tensor loss = backward(world, sharded, gradient, step);
    world.reduce_scatter(part_gradient, gradient, ReduceOp::avg);
    part_adam.update(part, part_gradient);
    world.all_gather(sharded, part);
    return loss;
  };
  bool is_equal = true;
  for (std::int64_t step = 0; step < 20; ++step) {
    sharded_step(step);
    backward(world, whole, gradient, step);  // 4. The same without shards
    world.all_reduce(gradient, ReduceOp::avg);
    whole_adam.update(whole, gradient);
    is_equal = is_equal && equal(sharded, whole);
  }
  const auto start = std::chrono::steady_clock::now();
  Tensor loss;
  for (std::int64_t step = 20; argc > 1 && step < 40; ++step) loss = sharded_step(step);
  synchronize(world.device());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (world.rank() == 0) {
    std::cout << "state: " << part_adam.bytes() << " of " << whole_adam.bytes() << " bytes\n"
              << "equal to the step without shards: " << is_equal << "\n";
    if (argc > 1) {
      std::cout << "loss " << loss.item<float>() << "\nseconds: " << seconds.count() << "\n";
    }
  }
  return is_equal ? 0 : 1;
}
// Output:
// [0] state: 1920 of 7680 bytes
// [0] equal to the step without shards: 1
