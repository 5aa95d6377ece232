// A sharded optimiser: each rank has the state of Adam for its part of the weights only.
//
// Run: glaunch sharded_optimiser    (without a GPU: export GANTRY_SIM_DEVICES=4)
//
// reduce_scatter() of the gradients, an update of the own part, all_gather() of the weights: as
// many bytes as an all_reduce(), with the n-th part of the state and of the work. Sums are in rank
// order in all operations, so the weights have the bits of the step without shards.
#include <gantry/gantry.hpp>

#include <cmath>
#include <iostream>

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
constexpr std::int64_t kIn = 24, kHidden = 33, kOut = 5;

Tensor flat_zeros(const Communicator& group) {
  const std::int64_t n = kIn * kHidden + kHidden * kOut, ranks = group.size();
  return zeros({(n + ranks - 1) / ranks * ranks}, group.device());
}
Tensor first_matrix(const Tensor& flat) {
  return flat.narrow(0, 0, kIn * kHidden).view({kIn, kHidden});
}
Tensor second_matrix(const Tensor& flat) {
  return flat.narrow(0, kIn * kHidden, kHidden * kOut).view({kHidden, kOut});
}

// The gradient of one rank: least squares on its own rows, through two matrices.
void backward(const Communicator& group, const Tensor& weights, const Tensor& gradient,
              std::int64_t step) {
  Generator generator(group.device());
  generator.manual_seed(static_cast<std::uint64_t>(100 * step + group.rank()));
  const Tensor x = randn({16, kIn}, group.device(), generator);
  const Tensor hidden = matmul(x, first_matrix(weights));
  const Tensor error = matmul(hidden, second_matrix(weights)) - x.slice(1, 0, kOut);
  first_matrix(gradient).copy_(matmul(x.t(), matmul(error, second_matrix(weights).t())));
  second_matrix(gradient).copy_(matmul(hidden.t(), error));
}

}  // namespace

int main() {
  const Communicator world = Communicator::world();
  const Tensor whole = flat_zeros(world), gradient = flat_zeros(world);
  Generator generator(world.device());
  generator.manual_seed(3);
  first_matrix(whole).normal_(0, 0.1, generator);
  second_matrix(whole).normal_(0, 0.1, generator);
  const Tensor sharded = whole.clone();

  // 3. The own part is a view of the weights: all_gather() sends it from there.
  const std::int64_t n = sharded.numel() / world.size();
  const Tensor part = sharded.narrow(0, n * world.rank(), n);
  const Tensor part_gradient = empty_like(part);
  Adam part_adam(part), whole_adam(whole);

  bool is_equal = true;
  for (std::int64_t step = 0; step < 20; ++step) {
    backward(world, sharded, gradient, step);
    world.reduce_scatter(part_gradient, gradient, ReduceOp::avg);
    part_adam.update(part, part_gradient);
    world.all_gather(sharded, part);

    backward(world, whole, gradient, step);  // 4. The same without shards
    world.all_reduce(gradient, ReduceOp::avg);
    whole_adam.update(whole, gradient);
    is_equal = is_equal && equal(sharded, whole);
  }
  if (world.rank() == 0) {
    std::cout << "state: " << part_adam.bytes() << " of " << whole_adam.bytes() << " bytes\n"
              << "equal to the step without shards: " << is_equal << "\n";
  }
  return is_equal ? 0 : 1;
}
// Output:
// [0] state: 1920 of 7680 bytes
// [0] equal to the step without shards: 1
