// The file of gantry-bench --model: machines of one kind, and the rates of their links.
#pragma once

#include <string>
#include <vector>

namespace gantry::bench {

/// The latency of a step over a kind of link, and the bandwidth of one link in one direction.
struct LinkRates {
  double latency_us = 0;
  double bandwidth_gbs = 0;  ///< 10^9 bytes a second
};

/// Machines that are all alike.
struct MachineModel {
  std::string path;    ///< of the file
  std::string device;  ///< name of the GPUs, which chooses the table of algorithms
  int machines = 1;
  std::vector<int> nics;          ///< by rank on its machine: its network interface
  int interfaces = 1;             ///< network interfaces of a machine
  bool reaches_peers = true;      ///< GPUs of a machine can use each other's memory
  bool keeps_line_order = false;  ///< all GPUs of a machine are joined by NVLink
  bool opens_memory = true;       ///< arrays can be used in place by ranks of their machine
  LinkRates peer;                 ///< between a GPU and its peers
  LinkRates host;                 ///< between the hosts of ranks of one machine
  LinkRates network;              ///< of one network interface

  /// Ranks of a machine, one for each GPU.
  [[nodiscard]] int width() const { return static_cast<int>(nics.size()); }
  [[nodiscard]] int most_ranks() const { return machines * width(); }
};

/// The most ranks of a model.
inline constexpr int kMostModelRanks = 1024;

/// Reads a model file and the topology file that it names.
/// Throws: InvalidArgument that names the file, the field, and what is wrong with it.
[[nodiscard]] MachineModel read_model(const std::string& path);

}  // namespace gantry::bench
