// Synchronizes a device, and tells how that failed.
#include <exception>
#include <iostream>

#include <gantry/device/device.hpp>

int main() {
  try {
    gantry::synchronize(gantry::Device::cuda(0));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
