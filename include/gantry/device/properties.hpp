#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>

namespace gantry {

/// Fixed facts about one device.
struct DeviceProperties {
  std::string name;  ///< "NVIDIA H200", or "Simulated GPU"
  std::string uuid;  ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "MIG-…" for an instance
  std::string pci_bus_id;  ///< "0000:1b:00.0"
  int major = 0;           ///< compute capability
  int minor = 0;
  std::size_t total_memory = 0;  ///< bytes
  int multiprocessors = 0;
  std::size_t l2_bytes = 0;
  int warp_size = 32;
  int max_threads_per_block = 0;
  int max_threads_per_multiprocessor = 0;
  std::size_t shared_memory_per_block = 0;        ///< bytes
  std::size_t shared_memory_per_block_optin = 0;  ///< bytes
  bool integrated = false;
  bool can_map_host_memory = false;
};

/// Properties of `device`, read once and cached. Creates no context.
/// Throws: InvalidArgument if there is no such device.
[[nodiscard]] const DeviceProperties& device_properties(Device device = Device::cuda());

/// Writes name, capability, memory and processor count on one line.
std::ostream& operator<<(std::ostream& out, const DeviceProperties& properties);

/// Architectures that this build holds kernels for, such as {"sm_90"}; empty without CUDA.
[[nodiscard]] std::vector<std::string> arch_list();
/// nvcc's -gencode flags for arch_list().
[[nodiscard]] std::string gencode_flags();

}  // namespace gantry
