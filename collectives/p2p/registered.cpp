#include "collectives/p2p/registered.hpp"

#include <algorithm>
#include <bit>

#include "collectives/p2p/plans.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "collectives/shares.hpp"
#include "job/flight_file.hpp"
#include "streams/batched_copy.hpp"

namespace gantry {

namespace {

using protocol::everyone;
using protocol::has;
using protocol::Phase;

// Kernels read and write registered memory by the word.
constexpr std::int64_t kWord = 16;
// A block that makes less of a part is not worth its signals.
constexpr std::int64_t kLeastBlockBytes = 2048;

std::int64_t bytes_of(const Descriptor& what) {
  return what.count * static_cast<std::int64_t>(element_size(what.dtype));
}

int most_blocks(std::int64_t part) {
  return static_cast<int>(
      std::clamp<std::int64_t>(part / kLeastBlockBytes, 1, protocol::kMaxBlocks));
}

// Integers of an element's width: the fold of one array of them is a copy, bit for bit.
DType integers_for(const Descriptor& what) {
  if (bytes_of(what) % 8 == 0) return i64;
  switch (element_size(what.dtype)) {
    case 8:
      return i64;
    case 4:
      return i32;
    case 2:
      return i16;
    default:
      return u8;
  }
}

}  // namespace

RegisteredOperations::Side::Side(int device)
    : stream_(driver().create_stream(device, 0)),
      forked_(driver().create_event(device, {})),
      joined_(driver().create_event(device, {})) {}

RegisteredOperations::Side::~Side() {
  driver().destroy_event(forked_);
  driver().destroy_event(joined_);
  driver().destroy_stream(stream_);
}

void RegisteredOperations::Side::copy(const CopyRegion& run, const Stream& stream) {
  driver().record_event(forked_, stream.native());
  driver().wait_event(stream_, forked_);
  driver().copy(run.to, run.from, run.bytes, stream_);
  driver().record_event(joined_, stream_);
}

void RegisteredOperations::Side::join(const Stream& stream) {
  driver().wait_event(stream.native(), joined_);
}

RegisteredOperations::RegisteredOperations(const protocol::Group& group,
                                           const Registrations& registrations, int device)
    : group_(group),
      registrations_(registrations),
      side_(device),
      captured_sides_{Side(device), Side(device)} {}

std::uint64_t RegisteredOperations::place_of(const CollectiveCall& call) const {
  const Descriptor& what = call.what;
  const std::int64_t bytes = bytes_of(what);
  if (call.is_uneven() || bytes <= 0) return 0;
  std::uint64_t place = 0;
  switch (what.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast: {
      // The root of a broadcast has no output, the others of a reduce have none, or no input.
      const bool in_one_place = call.in == nullptr || call.out == nullptr || call.in == call.out;
      if (in_one_place) place = registrations_.find(call.in ? call.in : call.out, bytes);
      break;
    }
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return registrations_.find(call.out, bytes * group_.size);
    case CollectiveKind::reduce_scatter:
      if (bytes % kWord == 0) place = registrations_.find(call.in, bytes * group_.size);
      break;
    default:
      break;
  }
  return place % kWord == 0 ? place : 0;
}

std::int64_t RegisteredOperations::Parts::begin_of(int rank) const {
  return std::popcount(owners & ((std::uint32_t{1} << rank) - 1)) * part;
}

std::int64_t RegisteredOperations::Parts::bytes_of(int rank) const {
  return has(owners, rank) ? protocol::clipped(bytes, begin_of(rank), part) : 0;
}

RegisteredOperations::Parts RegisteredOperations::parts_of(const Descriptor& what) const {
  Parts parts;
  parts.bytes = bytes_of(what);
  parts.owners = everyone(group_.size);
  if (what.kind == CollectiveKind::reduce_scatter) {
    parts.part = parts.bytes;
    parts.bytes *= group_.size;
    return parts;
  }
  if (what.kind != CollectiveKind::all_reduce) {
    // The root's link carries all of the array anyway. But the root of two reduces better itself:
    // then nothing goes against what it loads.
    const std::uint32_t root = std::uint32_t{1} << what.root;
    const bool root_owns = what.kind == CollectiveKind::reduce && group_.size == 2;
    parts.owners = root_owns ? root : parts.owners & ~root;
  }
  const std::int64_t owners = std::popcount(parts.owners);
  const std::int64_t even = (parts.bytes + owners - 1) / owners;
  parts.part = (even + kWord - 1) / kWord * kWord;
  return parts;
}

Phase RegisteredOperations::phase(const CollectiveCall& call, std::uint32_t step) const {
  Phase plan;
  plan.group = group_;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.digest = call.what.hash();
  plan.step = step;
  plan.begins = step == 0;
  return plan;
}

// The phase that begins and makes this rank's part, where only it is.
Phase RegisteredOperations::fold_of(const CollectiveCall& call, const Parts& parts) const {
  const Descriptor& what = call.what;
  const std::int64_t begin = parts.begin_of(group_.rank);
  const auto at = [&](int rank) { return registrations_.address(what.place, rank) + begin; };
  Phase plan = phase(call, 0);
  plan.bytes = parts.bytes_of(group_.rank);
  if (what.kind == CollectiveKind::broadcast) {
    plan.how.copies = false;
    plan.how.dtype = integers_for(what);
    plan.sources = 1;
    plan.ins[0] = at(what.root);
  } else {
    plan.how = combination(what, group_.size);
    plan.sources = group_.size;
    for (int rank = 0; rank < group_.size; ++rank) plan.ins[rank] = at(rank);
  }
  plan.targets = std::uint32_t{1} << group_.rank;
  plan.outs[group_.rank] = at(group_.rank);
  if (what.kind == CollectiveKind::reduce_scatter) {
    plan.outs[group_.rank] = static_cast<std::byte*>(call.out);
  }
  return plan;
}

void RegisteredOperations::run_in_place(const CollectiveCall& call, int blocks,
                                        const Stream& stream) {
  const Descriptor& what = call.what;
  const Parts parts = parts_of(what);
  Phase plan = fold_of(call, parts);
  plan.step = 1;
  plan.ends = true;
  if (what.kind != CollectiveKind::reduce_scatter) {
    const std::uint32_t root = what.root < 0 ? 0 : std::uint32_t{1} << what.root;
    plan.targets = what.kind == CollectiveKind::reduce ? root : everyone(group_.size) & ~root;
    const std::int64_t begin = parts.begin_of(group_.rank);
    for (int rank = 0; rank < group_.size; ++rank) {
      plan.outs[rank] = registrations_.address(what.place, rank) + begin;
    }
  }
  protocol::launch_phase(plan, std::min(blocks, most_blocks(parts.part)), stream);
}

void RegisteredOperations::run_copy(const CollectiveCall& call, const Stream& stream) {
  const Descriptor& what = call.what;
  switch (what.kind) {
    case CollectiveKind::all_reduce: {
      // Nobody else reads this rank's part anywhere, so that it may leave once it is made.
      const Parts parts = parts_of(what);
      protocol::launch_phase(fold_of(call, parts), most_blocks(parts.part), stream);
      send_array(call, parts.begin_of(group_.rank), parts.bytes_of(group_.rank), stream);
      break;
    }
    case CollectiveKind::broadcast:
      protocol::launch_phase(phase(call, 0), 1, stream);
      if (group_.rank == what.root) send_array(call, 0, bytes_of(what), stream);
      break;
    default:
      send_shares(call, stream);
  }
  Phase last = phase(call, 1);
  last.ends = true;
  protocol::launch_phase(last, 1, stream);
}

void RegisteredOperations::send_array(const CollectiveCall& call, std::int64_t begin,
                                      std::int64_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  const auto at = [&](int rank) { return registrations_.address(call.what.place, rank) + begin; };
  std::vector<CopyRegion> runs;
  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (group_.rank + turn) % group_.size;
    runs.push_back({at(group_.rank), at(peer), static_cast<std::size_t>(bytes)});
  }
  copy_batch(stream, runs);
}

void RegisteredOperations::send_shares(const CollectiveCall& call, const Stream& stream) {
  const int rank = group_.rank;
  const auto* in = static_cast<const std::byte*>(call.in);
  const PeerShares own = even_shares(call.what, rank, rank);
  std::byte* const place = static_cast<std::byte*>(call.out) + own.take.at;
  std::vector<CopyRegion> runs;
  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (rank + turn) % group_.size;
    const Share offer = even_shares(call.what, rank, peer).offer;
    const Share take = even_shares(call.what, peer, rank).take;
    runs.push_back({in + offer.at, registrations_.address(call.what.place, peer) + take.at,
                    static_cast<std::size_t>(offer.bytes)});
  }
  const auto send = [&] {
    protocol::launch_phase(phase(call, 0), 1, stream);
    copy_batch(stream, runs);
  };
  if (place == in + own.offer.at) return send();
  const CopyRegion own_share{in + own.offer.at, place, static_cast<std::size_t>(own.take.bytes)};
  Side* const side = side_for(stream);
  if (side == nullptr) {
    send();
    return driver().copy(own_share.to, own_share.from, own_share.bytes, stream.native());
  }
  side->copy(own_share, stream);
  try {
    send();
  } catch (...) {
    side->join(stream);
    throw;
  }
  side->join(stream);
}

RegisteredOperations::Side* RegisteredOperations::side_for(const Stream& stream) {
  const std::uint64_t capture = driver().capture_id(stream.native());
  if (capture == 0) return &side_;
  Side* free = nullptr;
  for (Side& side : captured_sides_) {
    const std::uint64_t taken_by = side.capture_id();
    if (taken_by == capture) return &side;
    if (taken_by == 0 && free == nullptr) free = &side;
  }
  return free;
}

}  // namespace gantry
