// Launches that race, each by a function of its own: prints the lines of their calls.
#include <cstdint>
#include <gantry/gantry.hpp>
#include <iostream>

namespace {

void loop_kernel(const gantry::Stream& stream, const gantry::Tensor& tensor) {
  auto* const values = static_cast<float*>(tensor.data_ptr());
  std::cout << "loop_kernel " << __LINE__ + 1 << "\n";
  gantry::parallel_for(stream, 100, gantry::uses().writes(tensor),
                       [values](std::int64_t i) { values[i] = 1; });
}

void block_kernel(const gantry::Stream& stream, const gantry::Tensor& tensor) {
  auto* const values = static_cast<float*>(tensor.data_ptr());
  std::cout << "block_kernel " << __LINE__ + 1 << "\n";
  gantry::launch(stream, 1, 1, gantry::uses().writes(tensor),
                 [values](gantry::Block&) { values[0] += 1; });
}

}  // namespace

int main() {
  const gantry::Device device = gantry::Device::cuda(0);
  const gantry::Tensor tensor = gantry::zeros({100}, device);
  gantry::synchronize(device);
  loop_kernel(gantry::Stream::from_pool(device), tensor);
  block_kernel(gantry::Stream::from_pool(device), tensor);
  gantry::synchronize(device);
}
