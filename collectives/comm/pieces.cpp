#include "collectives/comm/pieces.hpp"

#include <algorithm>
#include <cstdint>

#include "collectives/comm/fan_out.hpp"
#include "collectives/comm/tuning.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry {

namespace {

std::vector<Stream> streams_of(std::span<const Piece> pieces) {
  std::vector<Stream> streams;
  streams.reserve(pieces.size());
  for (const Piece& piece : pieces) add_stream(streams, piece.stream);
  return streams;
}

std::vector<CopyRegion> runs_of(std::span<const Piece> pieces) {
  std::vector<CopyRegion> runs;
  runs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) runs.push_back({piece.source(), piece.target(), piece.bytes});
  }
  return runs;
}

void keep(std::span<const Piece> pieces, const Stream& hub) noexcept {
  for (const Piece& piece : pieces) {
    const Stream users[] = {hub, piece.stream};
    keep_after_failure(std::span(&piece.from, 1), users);
    keep_after_failure(std::span(&piece.to, 1), users);
  }
}

// Moves all pieces on the hub's stream: `by_engines_from()` bytes and more by engines. It is asked
// when the hub has joined the capture, if there is one, of the streams that it waits for.
template <class ByEnginesFrom>
void move_pieces(const Stream& hub, std::span<const Piece> pieces, FreshOutputs* fresh,
                 const ByEnginesFrom& by_engines_from) {
  const std::vector<CopyRegion> runs = runs_of(pieces);
  if (runs.empty()) return;
  const std::vector<Stream> streams = streams_of(pieces);
  try {
    if (fresh != nullptr) {
      fresh->order();
    } else {
      order_behind(hub, streams);
    }
    move_runs(hub, runs, by_engines_from());
    release_behind(streams, hub);
  } catch (...) {
    keep(pieces, hub);
    throw;
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
  move_pieces(hub, pieces, fresh, [] { return comm_tuning().send_by_engines_bytes; });
}

void collect_pieces(const Stream& hub, std::span<const Piece> pieces) {
  // In a graph copies are single ones, and engines that fetch lose 12 us between them.
  move_pieces(hub, pieces, nullptr, [&] {
    return driver().is_capturing(hub.native()) ? SIZE_MAX : comm_tuning().fetch_by_engines_bytes;
  });
}

}  // namespace gantry
