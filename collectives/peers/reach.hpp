#pragma once

#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// True if kernels on `from` can read and write memory of `to`; enables peer access at the first
// question. Devices are resolved.
bool reaches(Device from, Device to);
// As that for the tensor's device, and the tensor's memory is open to other devices than its own.
bool reaches(Device from, const Tensor& tensor);
// See Storage::is_peer_accessible.
bool are_open_to_peers(std::span<const Tensor> tensors);

// Note [Hub order]
// A wait for another device's stream costs a microsecond and a half of host time, and every
// collective needs some before and after it. Through a root, a stream that waits for all others and
// that all others then wait for, n streams are ordered by 2 (n - 1) waits instead of n (n - 1).

// Streams without repetition, in the order of their first appearance.
void add_stream(std::vector<Stream>& streams, const Stream& stream);
// The current streams of the tensors' devices.
std::vector<Stream> current_streams(std::span<const Tensor> tensors);

// Makes `root` wait for all work submitted to `others`.
void order_behind(const Stream& root, std::span<const Stream> others);
// Makes `others` wait for all work submitted to `root`.
void release_behind(std::span<const Stream> others, const Stream& root);
// Makes `root` take part in the capture that one of the tensors' current streams takes part in, if
// there is one. What is allocated for the root from then on is memory of the capture.
void join_capture(const Stream& root, std::span<const Tensor> tensors);
// Makes every stream wait for all others; the first is the root.
void order_all(std::span<const Stream> streams);

}  // namespace gantry
