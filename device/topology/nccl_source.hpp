// Topology files of NCCL.
#pragma once

#include <string_view>

#include <gantry/device/topology.hpp>

namespace gantry {

/// Where the host of a virtual machine leaves NCCL's topology file.
inline constexpr const char* kVirtualTopology = "/var/run/nvidia-topologyd/virtualTopology.xml";

/// Reads NCCL's XML: processors, PCI tree, GPUs, NVLinks, network interfaces.
/// Throws: InvalidArgument that names the line or the element.
[[nodiscard]] Topology parse_nccl_xml(std::string_view text);

}  // namespace gantry
