#include "collectives/comm/pieces.hpp"

#include <algorithm>

#include <gantry/device/driver.hpp>

#include "collectives/comm/fan_out.hpp"
#include "collectives/comm/tuning.hpp"
#include "collectives/peers/reach.hpp"
#include "kernels/fan.hpp"

namespace gantry {

namespace {

std::vector<Stream> streams_of(std::span<const Piece> pieces) {
  std::vector<Stream> streams;
  streams.reserve(pieces.size());
  for (const Piece& piece : pieces) add_stream(streams, piece.stream);
  return streams;
}

std::size_t bytes_of(std::span<const Piece> pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

void copy_in_one_launch(const Stream& stream, std::span<const Piece> pieces) {
  std::vector<kernels::Run> runs;
  runs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    runs.push_back({piece.source(), piece.target(), piece.bytes});
  }
  kernels::fan(kernels::Target::on(stream), runs);
}

void copy_by_engine(const Stream& stream, const Piece& piece) {
  driver().copy_peer(piece.target(), piece.to.device().index, piece.source(),
                     piece.from.device().index, piece.bytes, stream.native());
}

void keep(std::span<const Piece> pieces, const Stream& hub) noexcept {
  for (const Piece& piece : pieces) {
    const Stream users[] = {hub, piece.stream};
    keep_after_failure(std::span(&piece.from, 1), users);
    keep_after_failure(std::span(&piece.to, 1), users);
  }
}

}  // namespace

const std::byte* Piece::source() const {
  return static_cast<const std::byte*>(from.data()) + from_place;
}

std::byte* Piece::target() const { return static_cast<std::byte*>(to.data()) + to_place; }

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

bool is_plain(const Tensor& from, const Tensor& to, Device hub) {
  return from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() &&
         from.is_cuda() && to.is_cuda() && !from.is_view_of(to) && reaches(hub, from) &&
         reaches(hub, to);
}

void send_pieces(const Stream& hub, std::span<const Piece> pieces, FreshOutputs* fresh) {
  const std::size_t bytes = bytes_of(pieces);
  if (bytes == 0) return;
  const std::vector<Stream> streams = streams_of(pieces);
  try {
    if (fresh != nullptr) {
      fresh->order();
    } else {
      order_behind(hub, streams);
    }
    if (bytes < comm_tuning().scatter_by_copies_bytes) {
      copy_in_one_launch(hub, pieces);
    } else {
      for (const Piece& piece : pieces) copy_by_engine(hub, piece);
    }
    release_behind(streams, hub);
  } catch (...) {
    keep(pieces, hub);
    throw;
  }
}

void collect_pieces(const Stream& hub, std::span<const Piece> pieces) {
  const std::size_t bytes = bytes_of(pieces);
  if (bytes == 0) return;
  const std::vector<Stream> streams = streams_of(pieces);
  try {
    if (bytes < comm_tuning().gather_by_copies_bytes) {
      order_behind(hub, streams);
      copy_in_one_launch(hub, pieces);
      release_behind(streams, hub);
      return;
    }
    // Each source's engine works for itself, and its stream goes on as soon as it is done.
    release_behind(streams, hub);
    for (const Piece& piece : pieces) copy_by_engine(piece.stream, piece);
    order_behind(hub, streams);
  } catch (...) {
    keep(pieces, hub);
    throw;
  }
}

}  // namespace gantry
