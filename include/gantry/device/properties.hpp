#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// Fixed facts about one device.
/// @since 0.1
struct DeviceProperties {
  std::string name;  ///< "NVIDIA H200", or "Simulated GPU"
  std::string uuid;  ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "MIG-…" for an instance
  std::string pci_bus_id;                         ///< "0000:1b:00.0"
  int major = 0;                                  ///< compute capability, first number
  int minor = 0;                                  ///< compute capability, second number
  std::size_t total_memory = 0;                   ///< bytes
  int multiprocessors = 0;                        ///< streaming multiprocessors
  std::size_t l2_bytes = 0;                       ///< size of the L2 cache
  int warp_size = 32;                             ///< threads of a warp
  int max_threads_per_block = 0;                  ///< most threads of one block
  int max_threads_per_multiprocessor = 0;         ///< most resident threads
  std::size_t shared_memory_per_block = 0;        ///< bytes
  std::size_t shared_memory_per_block_optin = 0;  ///< bytes
  bool integrated = false;                        ///< shares physical memory with the CPU
  bool can_map_host_memory = false;               ///< kernels can use page-locked host memory
};

/// Properties of `device`, read once and cached. Creates no context.
/// Throws: InvalidArgument if there is no such device.
/// Example: `std::cout << device_properties("cuda:0").total_memory << " bytes";`
/// @since 0.1
[[nodiscard]] GANTRY_API const DeviceProperties& device_properties(Device device = Device::cuda());

/// Writes name, capability, memory and processor count on one line.
GANTRY_API std::ostream& operator<<(std::ostream& out, const DeviceProperties& properties);

/// Architectures that this build holds kernels for, such as {"sm_90"}; empty without CUDA.
/// @since 0.1
[[nodiscard]] GANTRY_API std::vector<std::string> arch_list();
/// nvcc's -gencode flags for arch_list().
/// @since 0.1
[[nodiscard]] GANTRY_API std::string gencode_flags();

}  // namespace gantry
