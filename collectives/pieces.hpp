#pragma once

#include <span>
#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/fresh_outputs.hpp"

namespace gantry {

// A tensor and where it is copied to.
struct Piece {
  Tensor from;
  Tensor to;
  Stream stream;  // of the end that is not the hub's
};

// True if the bytes of a piece can be copied as they are, by kernels of `hub` too.
bool is_plain(const Tensor& from, const Tensor& to, Device hub);

// Sends plain pieces of tensors on the hub's device to others. Ordered both ways with the hub and
// every piece's stream; `fresh` made the receivers, if they are new ones.
void send_pieces(const Stream& hub, std::span<const Piece> pieces, FreshOutputs* fresh);

// Collects plain pieces from anywhere in tensors on the hub's device. Ordered as send_pieces.
void collect_pieces(const Stream& hub, std::span<const Piece> pieces);

}  // namespace gantry
