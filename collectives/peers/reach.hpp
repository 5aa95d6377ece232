#pragma once

#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "streams/stream_order.hpp"

namespace gantry {

// True if kernels on `from` can read and write memory of `to`; enables peer access at the first
// query. Requires: resolved devices.
bool reaches(Device from, Device to);
// As above for the tensor's device; also requires that the tensor's memory is peer-accessible.
bool reaches(Device from, const Tensor& tensor);
// See Storage::is_peer_accessible.
bool are_open_to_peers(std::span<const Tensor> tensors);

// The current streams of the tensors' devices.
std::vector<Stream> current_streams(std::span<const Tensor> tensors);

// Makes `root` join the capture of a current stream of the tensors, if there is one. Later
// allocations for the root are in the capture's memory pool.
void join_capture(const Stream& root, std::span<const Tensor> tensors);

}  // namespace gantry
