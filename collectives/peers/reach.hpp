#pragma once

#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// True if kernels on `from` can read and write memory of `to`; enables peer access at the first
// query. Requires: resolved devices.
bool reaches(Device from, Device to);
// As above for the tensor's device; also requires that the tensor's memory is peer-accessible.
bool reaches(Device from, const Tensor& tensor);
// See Storage::is_peer_accessible.
bool are_open_to_peers(std::span<const Tensor> tensors);

// Note [Root streams]
// A wait for another device's stream costs 1.5 us of host time, and every collective needs waits
// before and after it. The root stream waits for all others, and all others then wait for it. This
// orders n streams with 2 (n - 1) waits instead of n (n - 1).

// Appends `stream` unless `streams` has it.
void add_stream(std::vector<Stream>& streams, const Stream& stream);
// The current streams of the tensors' devices.
std::vector<Stream> current_streams(std::span<const Tensor> tensors);

// Makes `root` wait for all work submitted to `others`.
void order_behind(const Stream& root, std::span<const Stream> others);
// Makes `others` wait for all work submitted to `root`.
void release_behind(std::span<const Stream> others, const Stream& root);
// Makes `root` join the capture of a current stream of the tensors, if there is one. Later
// allocations for the root are in the capture's memory pool.
void join_capture(const Stream& root, std::span<const Tensor> tensors);
// Makes every stream wait for all others, through the first one as root.
void order_all(std::span<const Stream> streams);

}  // namespace gantry
