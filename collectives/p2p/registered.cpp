#include "collectives/p2p/registered.hpp"

#include <algorithm>
#include <bit>

#include "collectives/call.hpp"
#include "collectives/p2p/plans.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "collectives/slices.hpp"
#include "job/flight_file.hpp"
#include "streams/batched_copy.hpp"

namespace gantry {

namespace {

using protocol::ZeroCopy;

// Alignment of registered memory: kernels read and write words of 16 bytes.
constexpr std::int64_t kWord = 16;
// Integers of an element's width: the reduction of one array of them is a bitwise copy.
DType integers_for(const Descriptor& what) {
  if (what.bytes() % 8 == 0) return i64;
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

int most_zero_copy_blocks(std::int64_t slice_bytes) {
  // Smaller slices of a block cost less than its signals.
  constexpr std::int64_t kMinBlockBytes = 2048;
  return static_cast<int>(
      std::clamp<std::int64_t>(slice_bytes / kMinBlockBytes, 1, protocol::kMaxBlocks));
}

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

std::uint64_t RegisteredOperations::window_offset_of(const CollectiveCall& call) const {
  const Descriptor& what = call.what;
  const std::int64_t bytes = what.bytes();
  if (call.is_uneven() || call.is_apart || bytes <= 0) return 0;
  std::uint64_t window_offset = 0;
  switch (what.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast: {
      // The root of a broadcast has no output, the others of a reduce have none, or no input.
      const bool is_one_tensor = call.in == nullptr || call.out == nullptr || call.in == call.out;
      if (is_one_tensor) window_offset = registrations_.find(call.in ? call.in : call.out, bytes);
      break;
    }
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return registrations_.find(call.out, bytes * group_.size);
    case CollectiveKind::reduce_scatter:
      if (bytes % kWord == 0) window_offset = registrations_.find(call.in, bytes * group_.size);
      break;
    default:
      break;
  }
  return window_offset % kWord == 0 ? window_offset : 0;
}

ZeroCopy RegisteredOperations::zero_copy(const CollectiveCall& call, std::uint32_t barrier) const {
  ZeroCopy plan;
  plan.group = group_;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.digest = call.what.hash();
  plan.barrier = barrier;
  plan.begins = barrier == 0;
  return plan;
}

// The first kernel: reduces this rank's slice, into this rank's memory only.
ZeroCopy RegisteredOperations::begin_reduction(const CollectiveCall& call,
                                               const ReducedSlices& slices) const {
  const Descriptor& what = call.what;
  const Part slice = slices.of(group_.rank);
  const auto at = [&](int rank) {
    return registrations_.address(what.window_offset, rank) + slice.begin;
  };
  ZeroCopy plan = zero_copy(call, 0);
  plan.bytes = slice.count;
  if (what.kind == CollectiveKind::broadcast) {
    plan.how.copies = false;
    plan.how.dtype = integers_for(what);
    plan.inputs = 1;
    plan.ins[0] = at(what.root);
  } else {
    plan.how = reduce_by(what, group_.size);
    plan.inputs = group_.size;
    for (int rank = 0; rank < group_.size; ++rank) plan.ins[rank] = at(rank);
  }
  plan.targets = only(group_.rank);
  plan.outs[group_.rank] = at(group_.rank);
  if (what.kind == CollectiveKind::reduce_scatter) {
    plan.outs[group_.rank] = static_cast<std::byte*>(call.out);
  }
  return plan;
}

void RegisteredOperations::run_zero_copy(const CollectiveCall& call, int blocks,
                                         const Stream& stream) {
  const Descriptor& what = call.what;
  const ReducedSlices slices = reduced_slices(what, group_.size);
  ZeroCopy plan = begin_reduction(call, slices);
  plan.barrier = 1;
  plan.ends = true;
  if (what.kind != CollectiveKind::reduce_scatter) {
    plan.targets = set_of(two_shot_roles(what.kind).receivers, what.root, group_.size);
    const std::int64_t begin = slices.of(group_.rank).begin;
    for (int rank = 0; rank < group_.size; ++rank) {
      plan.outs[rank] = registrations_.address(what.window_offset, rank) + begin;
    }
  }
  protocol::launch<protocol::kernel::zero_copy>(
      plan, std::min(blocks, most_zero_copy_blocks(slices.longest())), stream);
}

void RegisteredOperations::run_copy(const CollectiveCall& call, const Stream& stream) {
  const Descriptor& what = call.what;
  switch (what.kind) {
    case CollectiveKind::all_reduce: {
      // No other rank reads this rank's slice, so its copies may follow without a barrier.
      const ReducedSlices slices = reduced_slices(what, group_.size);
      protocol::launch<protocol::kernel::zero_copy>(
          begin_reduction(call, slices), most_zero_copy_blocks(slices.longest()), stream);
      const Part slice = slices.of(group_.rank);
      send_array(call, slice.begin, slice.count, stream);
      break;
    }
    case CollectiveKind::broadcast:
      protocol::launch<protocol::kernel::zero_copy>(zero_copy(call, 0), 1, stream);
      if (group_.rank == what.root) send_array(call, 0, what.bytes(), stream);
      break;
    default:
      send_slices(call, stream);
  }
  ZeroCopy last = zero_copy(call, 1);
  last.ends = true;
  protocol::launch<protocol::kernel::zero_copy>(last, 1, stream);
}

void RegisteredOperations::send_array(const CollectiveCall& call, std::int64_t begin,
                                      std::int64_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  const auto at = [&](int rank) {
    return registrations_.address(call.what.window_offset, rank) + begin;
  };
  std::vector<CopyRegion> runs;
  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (group_.rank + turn) % group_.size;
    runs.push_back({at(group_.rank), at(peer), static_cast<std::size_t>(bytes)});
  }
  copy_batch(stream, runs);
}

void RegisteredOperations::send_slices(const CollectiveCall& call, const Stream& stream) {
  const int rank = group_.rank;
  const auto* in = static_cast<const std::byte*>(call.in);
  const PeerSlices own = even_slices(call.what, rank, rank);
  std::byte* const own_output = static_cast<std::byte*>(call.out) + own.receive.at;
  std::vector<CopyRegion> runs;
  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (rank + turn) % group_.size;
    const ByteSlice send_slice = even_slices(call.what, rank, peer).send;
    const ByteSlice receive_slice = even_slices(call.what, peer, rank).receive;
    runs.push_back({in + send_slice.at,
                    registrations_.address(call.what.window_offset, peer) + receive_slice.at,
                    static_cast<std::size_t>(send_slice.bytes)});
  }
  const auto send = [&] {
    protocol::launch<protocol::kernel::zero_copy>(zero_copy(call, 0), 1, stream);
    copy_batch(stream, runs);
  };
  if (own_output == in + own.send.at) return send();
  const CopyRegion own_copy{in + own.send.at, own_output,
                            static_cast<std::size_t>(own.receive.bytes)};
  Side* const side = side_for(stream);
  if (side == nullptr) {
    send();
    return driver().copy(own_copy.to, own_copy.from, own_copy.bytes, stream.native());
  }
  side->copy(own_copy, stream);
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
