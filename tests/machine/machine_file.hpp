// Machines as the sources of a Topology see them, from files.
#pragma once

#include <string>
#include <vector>

#include <gantry/machine/topology.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

/// A machine of a file, for discover_topology(): hwloc gets a synthetic description, the fake NVML
/// its devices, and a folder looks like /sys. The environment names them while this lives.
///
/// A line of the file is one of
///   processors TEXT              hwloc's synthetic description
///   gpu BUS NODE CHAIN NAME      node −1: firmware does not tell; CHAIN: bridges, "pci0000:1a/…"
///   instances N                  the GPU of the line before is divided into N MIG instances
///   nic NAME BUS NODE CHAIN
///   switches N                   every GPU has N NVLinks to switches
///   link I J N                   N NVLinks between GPUs I and J
class MachineFile {
 public:
  /// Throws: std::runtime_error for a line of another form.
  explicit MachineFile(const std::string& path);
  ~MachineFile();
  MachineFile(const MachineFile&) = delete;
  MachineFile& operator=(const MachineFile&) = delete;

  /// The machine that is discovered. `nvml`: path of the fake library.
  [[nodiscard]] machine::Topology discover(const std::string& nvml) const;

 private:
  struct Gpu {
    std::string bus_id;
    std::string name;
    int instances = 0;
  };
  void read(const std::string& line);
  void add_device(const std::string& bus_id, int node, const std::string& chain);
  void set(const std::string& name, const std::string& value);
  void describe_gpus();

  TemporaryFolder folder_;
  std::vector<std::string> variables_;
  std::vector<Gpu> gpus_;
  std::vector<std::string> facts_;
};

}  // namespace gantry::testing
