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

}  // namespace gantry
