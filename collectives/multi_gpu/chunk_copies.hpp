#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/multi_gpu/output_cache.hpp"

namespace gantry {

// A copy of a range of bytes from one tensor to another, for scatter and gather.
struct ChunkCopy {
  Tensor from;
  Tensor to;
  Stream stream;  // the owner stream of the tensor that is not on the root
  std::size_t bytes;
  std::size_t from_offset = 0;  // in bytes from the first element
  std::size_t to_offset = 0;

  [[nodiscard]] const std::byte* source() const;
  [[nodiscard]] std::byte* target() const;
};

// True if every range of `tensor` along `dim` is contiguous.
bool has_dense_ranges(const Tensor& tensor, int dim);
// Returns the bytes of `count` elements of `tensor` along `dim`. Requires: has_dense_ranges().
std::size_t range_bytes(const Tensor& tensor, int dim, std::int64_t count);

// True if the bytes can be copied without conversion, and kernels of `root` reach both tensors.
bool is_plain(const Tensor& from, const Tensor& to, Device root);

// Sends plain chunks from tensors on the root's device to others. Ordered before and after with the
// root stream and every chunk's stream. `cached` made the receivers, if they are new.
void send_chunks(const Stream& root, std::span<const ChunkCopy> chunks, CachedOutputs* cached);

// Gathers plain chunks from any device in tensors on the root's device. Ordered as send_chunks().
void gather_chunks(const Stream& root, std::span<const ChunkCopy> chunks);

}  // namespace gantry
