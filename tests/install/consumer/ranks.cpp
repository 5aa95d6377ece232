// A rank of an MPI job: the sum over all ranks.
#include <gantry/gantry.hpp>
#include <iostream>

int main() {
  gantry::Communicator world = gantry::Communicator::world();
  gantry::Tensor numbers =
      gantry::full({1}, world.rank() + 1, {.dtype = gantry::f32, .device = world.device()});
  world.all_reduce(numbers);
  if (world.rank() == 0) {
    std::cout << world.size() << " ranks, sum " << numbers.item<float>() << "\n";
  }
}
