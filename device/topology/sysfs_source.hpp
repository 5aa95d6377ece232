// The machine as Linux describes it below /sys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/device/topology.hpp>

#include "device/topology/pci_facts.hpp"

namespace gantry {

/// Files below /sys, or below another root that looks like it.
class SysfsSource {
 public:
  explicit SysfsSource(std::string root) : root_(std::move(root)) {}

  /// One PCI device; none if there is no such entry.
  [[nodiscard]] std::optional<PciDevice> device(const std::string& bus_id) const;
  /// Interfaces with a PCI device, one for each function.
  [[nodiscard]] std::vector<Topology::Nic> nics() const;
  /// NUMA nodes that have CPUs.
  [[nodiscard]] std::vector<Topology::NumaNode> nodes() const;
  [[nodiscard]] std::vector<Topology::Core> cores(
      const std::vector<Topology::NumaNode>& nodes) const;
  /// CPU time that the control groups of this process grant, in CPUs; none: no limit.
  [[nodiscard]] std::optional<double> cpu_quota(const std::string& own_group) const;

 private:
  std::string root_;
};

/// The control group (version 2) of this process, such as "/user.slice"; empty if there is none.
[[nodiscard]] std::string own_control_group();

}  // namespace gantry
