#pragma once

#include <span>

#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// True if kernels on `from` can read and write memory of `to`; enables peer access at the first
// query. Requires: resolved devices.
bool reaches(Device from, Device to);
// As above for the tensor's device; also requires that the tensor's memory is peer-accessible.
bool reaches(Device from, const Tensor& tensor);
// See Storage::is_peer_accessible.
bool are_open_to_peers(std::span<const Tensor> tensors);

// True if stores of an LL128 line from `device` to `peer`, devices of this process, arrive in the
// order of their addresses: see Note [LL and LL128].
//
// It is so within a device and over NVLinks. The driver tells of atomics to the peer's memory,
// which some PCIe platforms have, too, and NVML tells of NVLinks. A link that NVML does not know
// counts as none. On simulated devices NVML is not asked.
bool keeps_line_order(int device, int peer);

}  // namespace gantry
