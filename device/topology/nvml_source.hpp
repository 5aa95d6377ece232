// GPUs and the links between them, as NVML sees them.
#pragma once

#include <string>

#include <gantry/device/topology.hpp>

namespace gantry {

/// Adds the GPUs of NVML in PCI order, MIG instances in place of the GPU that they divide, with
/// what NVML tells of them. Sets why_no_gpu if there is none.
void read_nvml(const std::string& library_path, bool with_links, Topology& topology);

}  // namespace gantry
