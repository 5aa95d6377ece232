// A user's program: one tensor, on every device; then snapshots in the folder of its argument.
#include <gantry/gantry.hpp>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  std::vector<gantry::Device> devices;
  for (int i = 0; i < gantry::device_count(); ++i) devices.push_back(gantry::Device::cuda(i));
  std::cout << devices.size() << " devices";

  const gantry::Tensor source = gantry::arange(5, {.device = gantry::Device::cuda(0)});
  for (const gantry::Tensor& copy : gantry::comm::broadcast(source, devices)) {
    std::cout << ", " << copy.device() << " holds " << copy.sum().item<std::int64_t>();
  }
  std::cout << "\n";

  // All files of snapshots: the library finds gantry-snapshot in its own tree.
  if (argc < 2) return 0;
  for (const char* extension : {".json", ".html", ".pickle"}) {
    gantry::memory::save_snapshot(std::string(argv[1]) + "/snapshot" + extension);
  }
}
