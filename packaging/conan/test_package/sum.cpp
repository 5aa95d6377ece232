// The sum of a tensor on each of two devices, on the first one.
#include <gantry/gantry.hpp>

#include <iostream>
#include <vector>

int main() {
  using namespace gantry;
  std::vector<Tensor> parts;
  for (int i = 0; i < device_count(); ++i) parts.push_back(full({4}, i + 1.0, Device::cuda(i)));
  const float sum = comm::reduce_add(parts, "cuda:0").sum().item<float>();
  std::cout << "the sum is " << sum << "\n";
  return sum == 12 ? 0 : 1;
}
