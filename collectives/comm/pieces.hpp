#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/comm/fresh_outputs.hpp"

namespace gantry {

// Bytes of one tensor and where in another they are copied to.
struct Piece {
  Tensor from;
  Tensor to;
  Stream stream;  // of the end that is not the hub's
  std::size_t bytes;
  std::size_t from_place = 0;  // in bytes from the tensors' first elements
  std::size_t to_place = 0;

  [[nodiscard]] const std::byte* source() const;
  [[nodiscard]] std::byte* target() const;
};

// True if every range of `tensor` along `dim` lies in one piece, without gaps.
bool has_dense_ranges(const Tensor& tensor, int dim);
// Bytes of `count` elements of `tensor` along `dim`, where has_dense_ranges().
std::size_t range_bytes(const Tensor& tensor, int dim, std::int64_t count);

// True if the bytes of a piece can be copied as they are, by kernels of `hub` too.
bool is_plain(const Tensor& from, const Tensor& to, Device hub);

// Sends plain pieces of tensors on the hub's device to others. Ordered both ways with the hub and
// every piece's stream; `fresh` made the receivers, if they are new ones.
void send_pieces(const Stream& hub, std::span<const Piece> pieces, FreshOutputs* fresh);

// Collects plain pieces from anywhere in tensors on the hub's device. Ordered as send_pieces.
void collect_pieces(const Stream& hub, std::span<const Piece> pieces);

}  // namespace gantry
