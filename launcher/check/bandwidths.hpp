// Bandwidths of the devices of a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/text/json.hpp"

namespace gantry::launcher {

/// A measured way. A way that was not measured has neither a number nor a cause.
struct Bandwidth {
  std::optional<double> gigabytes_per_second;
  std::uint64_t bytes = 0;        ///< of one copy
  std::uint64_t wrong_bytes = 0;  ///< that differ from what was sent
  bool is_by_kernel = false;      ///< a kernel moved the bytes; else a copy of the driver
  std::optional<int> host_node;   ///< NUMA node that the host memory was on
  std::string failure;            ///< cause, if there is no number
};

/// The measurements of gantry-check-devices. GPUs are numbered as in the Topology.
struct Bandwidths {
  /// Both directions between a GPU and memory of a NUMA node.
  struct Host {
    Bandwidth to_device;
    Bandwidth to_host;
  };
  std::vector<int> nodes;                     ///< NUMA nodes of the host; −1: memory of any node
  std::vector<std::vector<Bandwidth>> write;  ///< [gpu][peer]: the GPU writes memory of the peer
  std::vector<std::vector<Bandwidth>> read;   ///< [gpu][peer]: the GPU reads memory of the peer
  std::vector<std::vector<Host>> host;        ///< [gpu][index in nodes]
  std::string no_devices;                     ///< cause, if the devices cannot be used
  std::vector<std::string> failures;          ///< why parts are missing, one clause each

  /// Nothing measured between `gpus` GPUs and `nodes`.
  [[nodiscard]] static Bandwidths of(std::size_t gpus, std::vector<int> nodes);
};

/// The numbers as JSON: GB/s, null where there is none.
[[nodiscard]] Json bandwidths_json(const Bandwidths& bandwidths);
/// The numbers as tables for a terminal.
[[nodiscard]] std::string bandwidths_text(const Bandwidths& bandwidths);

}  // namespace gantry::launcher
