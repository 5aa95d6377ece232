// Random state: equal seeds give equal numbers, and a state can be saved and restored.
//
// Every device has a generator. Numbers depend on seed, position and index only. So they are the
// same on the CPU, on simulated devices and on GPUs, whatever the launch configuration.
#include <gantry/gantry.hpp>

#include <iostream>

namespace {

bool same_values(const gantry::Tensor& a, const gantry::Tensor& b) {
  return (a.cpu() == b.cpu()).all().item<bool>();
}

}  // namespace

int main() {
  using namespace gantry;

  // 1. One seed for all devices.
  manual_seed_all(42);
  const Tensor first = rand({1000}, "cuda:0");
  const Tensor next = rand({1000}, "cuda:0");
  std::cout << "the generator goes on: " << !same_values(first, next) << "\n";
  manual_seed_all(42);
  std::cout << "the seed brings it back: " << same_values(first, rand({1000}, "cuda:0")) << "\n";

  // 2. A state is a tensor: save it in a checkpoint, restore it to continue.
  const Tensor state = get_rng_state("cuda:0");
  const Tensor expected = randn({500}, "cuda:0");
  (void)rand({123}, "cuda:0");
  set_rng_state(state, "cuda:0");
  std::cout << "restored: " << same_values(expected, randn({500}, "cuda:0")) << "\n";

  // 3. A generator of one's own does not touch the device's.
  Generator dropout("cuda:0", 7);
  const Tensor mask = rand({100}, "cuda:0", dropout) > 0.5;
  Generator same("cuda:0", 7);
  std::cout << "own generator: " << same_values(mask, rand({100}, "cuda:0", same) > 0.5) << "\n";

  // 4. The CPU draws the same numbers.
  Generator on_cpu("cpu", 7);
  std::cout << "cpu and device agree: "
            << same_values(rand({100}, on_cpu), rand({100}, "cuda:0", Generator("cuda:0", 7)))
            << "\n";

  // 5. Ranks of a job fork one generator: their streams of numbers do not overlap.
  const Generator job("cuda:0", 1);
  Generator rank0 = job.fork(0);
  Generator rank1 = job.fork(1);
  std::cout << "ranks differ: "
            << !same_values(rand({8}, "cuda:0", rank0), rand({8}, "cuda:0", rank1)) << "\n";
}
// Output:
// the generator goes on: 1
// the seed brings it back: 1
// restored: 1
// own generator: 1
// cpu and device agree: 1
// ranks differ: 1
