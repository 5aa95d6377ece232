// Device semantics on two devices: the current device, guards, and operands that must live on one
// device.
#include <gantry/gantry.hpp>

#include <iostream>
#include <string>
#include <vector>

int main() {
  using namespace gantry;
  if (device_count() < 2) {
    std::cout << "this example needs two devices\n";
    return 77;
  }

  // 1. "cuda" is the current device of the thread; a guard changes it for one scope.
  std::cout << "outside: " << zeros({1}, "cuda").device() << "\n";
  {
    const DeviceGuard guard("cuda:1");
    std::cout << "inside: " << zeros({1}, "cuda").device() << "\n";
  }

  // 2. Results are made where the operands are, whatever the current device.
  const Tensor first = ones({3}, "cuda:0");
  const Tensor second = full({3}, 2.0, "cuda:1");
  std::cout << "second + 1: " << (second + 1).device() << "\n";

  // 3. Operands on two devices are an error, before anything runs.
  try {
    (void)(first + second);
  } catch (const DeviceMismatchError& error) {
    const std::string text = error.what();
    std::cout << "refused: " << text.substr(0, text.find(',')) << "\n";
  }

  // 4. A transfer is explicit. It is ordered with the current streams of both devices.
  std::cout << "moved: " << (first + second.to("cuda:0")) << "\n";

  // 5. A 0-dim tensor of the CPU mixes with any device, as a number does.
  std::cout << "scalar: " << (second * scalar_tensor(10.0)) << "\n";

  // 6. The collectives of one process: a tensor of each device in, the sum on each one out.
  std::vector<Tensor> copies = comm::broadcast(first, {"cuda:0", "cuda:1"});
  std::cout << "sum on cuda:1: " << comm::reduce_add({first.clone(), second}, "cuda:1") << "\n";
  std::cout << "copies: " << copies[0].device() << ", " << copies[1].device() << "\n";
}
// Output:
// outside: cuda:0
// inside: cuda:1
// second + 1: cuda:1
// refused: Expected all tensors to be on the same device
// moved: [3., 3., 3.]
// [3] f32 cuda:0
// scalar: [20., 20., 20.]
// [3] f32 cuda:1
// sum on cuda:1: [3., 3., 3.]
// [3] f32 cuda:1
// copies: cuda:0, cuda:1
