// Short texts of the parts of a Topology.
#pragma once

#include <string>
#include <vector>

#include <gantry/machine/topology.hpp>

namespace gantry::launcher {

/// "NV18", "PIX", …; "?" if it is unknown. "X" for a GPU and itself.
[[nodiscard]] std::string connection_text(const machine::Topology::Link& link);
/// The name of a path, or "?".
[[nodiscard]] std::string path_text(const machine::Fact<machine::PciPath>& path);
/// The name of an interface, or its bus id where nothing else is known.
[[nodiscard]] std::string nic_text(const machine::Topology::Nic& nic);
/// "63.5 GiB".
[[nodiscard]] std::string gibibytes(std::uint64_t bytes);
/// "gen 4 x8 of gen 5 x16", or "15.8 GB/s" where lanes are not told; "?" for what is unknown.
[[nodiscard]] std::string pcie_text(const machine::Topology::Gpu& gpu);
/// "0.5 of 80.0 GiB used, 1 process", as far as it is known.
[[nodiscard]] std::string use_text(const machine::Topology::Gpu& gpu);
/// True if the GPUs are simulated devices: they have no driver, and no place unless a file says so.
[[nodiscard]] bool is_simulated(const machine::Topology& topology);
/// The title of devices whose NUMA node is unknown.
[[nodiscard]] std::string no_node_text(const machine::Topology& topology);
/// The kind of virtual machine; "yes" where the hypervisor does not tell its name.
[[nodiscard]] std::string virtualization_text(const machine::Fact<std::string>& virtualization);
/// The first characters of each GPU's UUID, 12 or as many as tell the GPUs apart: "GPU-1234abcd".
[[nodiscard]] std::vector<std::string> short_uuids(const machine::Topology& topology);

}  // namespace gantry::launcher
