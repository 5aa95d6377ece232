#include "collectives/multi_gpu/chunk_copies.hpp"

#include <algorithm>
#include <cstdint>

#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/tuning.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry {

namespace {

std::vector<Stream> streams_of(std::span<const ChunkCopy> chunks) {
  std::vector<Stream> streams;
  streams.reserve(chunks.size());
  for (const ChunkCopy& chunk : chunks) add_stream(streams, chunk.stream);
  return streams;
}

std::vector<CopyRegion> runs_of(std::span<const ChunkCopy> chunks) {
  std::vector<CopyRegion> runs;
  runs.reserve(chunks.size());
  for (const ChunkCopy& chunk : chunks) {
    if (chunk.bytes > 0) runs.push_back({chunk.source(), chunk.target(), chunk.bytes});
  }
  return runs;
}

void keep(std::span<const ChunkCopy> chunks, const Stream& root) noexcept {
  for (const ChunkCopy& chunk : chunks) {
    const Stream users[] = {root, chunk.stream};
    keep_after_failure(std::span(&chunk.from, 1), users);
    keep_after_failure(std::span(&chunk.to, 1), users);
  }
}

// Copies all chunks on the root stream; copy engines copy `by_engines_from()` bytes or more. It is
// called after the root stream has joined the capture of the streams that it waits for, if any.
template <class ByEnginesFrom>
void copy_chunks(const Stream& root, std::span<const ChunkCopy> chunks, CachedOutputs* cached,
                 const ByEnginesFrom& by_engines_from) {
  const std::vector<CopyRegion> runs = runs_of(chunks);
  if (runs.empty()) return;
  const std::vector<Stream> streams = streams_of(chunks);
  try {
    if (cached != nullptr) {
      cached->order();
    } else {
      order_behind(root, streams);
    }
    copy_by_size(root, runs, by_engines_from());
    release_behind(streams, root);
  } catch (...) {
    keep(chunks, root);
    throw;
  }
}

}  // namespace

const std::byte* ChunkCopy::source() const {
  return static_cast<const std::byte*>(from.data()) + from_offset;
}

std::byte* ChunkCopy::target() const { return static_cast<std::byte*>(to.data()) + to_offset; }

bool has_dense_ranges(const Tensor& tensor, int dim) {
  if (!tensor.is_contiguous()) return false;
  const Shape& sizes = tensor.sizes();
  return std::all_of(sizes.begin(), sizes.begin() + dim, [](std::int64_t n) { return n == 1; });
}

std::size_t range_bytes(const Tensor& tensor, int dim, std::int64_t count) {
  const Shape& sizes = tensor.sizes();
  for (int d = dim + 1; d < sizes.size(); ++d) count *= sizes[d];
  return static_cast<std::size_t>(count) * tensor.element_size();
}

bool is_plain(const Tensor& from, const Tensor& to, Device root) {
  return from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() &&
         from.is_cuda() && to.is_cuda() && !from.is_view_of(to) && reaches(root, from) &&
         reaches(root, to);
}

void send_chunks(const Stream& root, std::span<const ChunkCopy> chunks, CachedOutputs* cached) {
  copy_chunks(root, chunks, cached, [] { return comm_tuning().send_by_engines_bytes; });
}

void gather_chunks(const Stream& root, std::span<const ChunkCopy> chunks) {
  // In a graph each copy is a node, and reading copy engines lose 12 us between two nodes.
  copy_chunks(root, chunks, nullptr, [&] {
    return driver().is_capturing(root.native()) ? SIZE_MAX : comm_tuning().fetch_by_engines_bytes;
  });
}

}  // namespace gantry
