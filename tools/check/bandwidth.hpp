// Bandwidths of this process's devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/check/measurements.hpp"

namespace gantry::check {

/// The result of a measurement.
struct Bandwidth {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;        ///< of one copy
  std::uint64_t wrong_bytes = 0;  ///< that differ from what was sent
  bool is_by_kernel = false;      ///< a kernel moved the bytes; else a copy of the driver
  std::optional<int> host_node;   ///< NUMA node of the host memory, if the kernel tells
};

/// Measures one copy at a time, with memory of its own on each device that was measured.
class BandwidthBench {
 public:
  /// `nodes`: those that Measurement::other names; their id is −1 for any memory.
  explicit BandwidthBench(std::vector<HostNode> nodes);
  ~BandwidthBench();
  BandwidthBench(const BandwidthBench&) = delete;
  BandwidthBench& operator=(const BandwidthBench&) = delete;

  /// Blocks until the copies are done and their result is compared.
  /// Throws: what the devices do; Error if the host node cannot be used.
  [[nodiscard]] Bandwidth measure(const Measurement& measurement);

 private:
  struct DeviceMemory;
  struct HostMemory;
  DeviceMemory& memory_of(int device);
  // How many bytes of the device's target differ from `sent`.
  std::uint64_t wrong_bytes_of(const DeviceMemory& device, const std::byte* sent);
  Bandwidth measure_peer(const Measurement& measurement);
  Bandwidth measure_host(const Measurement& measurement);

  std::vector<HostNode> nodes_;
  std::size_t bytes_;
  std::vector<std::unique_ptr<DeviceMemory>> devices_;
};

}  // namespace gantry::check
