// A user's program: one tensor, on every device.
#include <gantry/gantry.hpp>
#include <iostream>
#include <vector>

int main() {
  std::vector<gantry::Device> devices;
  for (int i = 0; i < gantry::device_count(); ++i) devices.push_back(gantry::Device::cuda(i));
  std::cout << devices.size() << " devices";

  const gantry::Tensor source = gantry::arange(5, {.device = gantry::Device::cuda(0)});
  for (const gantry::Tensor& copy : gantry::comm::broadcast(source, devices)) {
    std::cout << ", " << copy.device() << " holds " << copy.sum().item<std::int64_t>();
  }
  std::cout << "\n";
}
