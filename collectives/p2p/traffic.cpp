#include "collectives/p2p/traffic.hpp"

#include <algorithm>
#include <bit>

#include "collectives/algorithms/message.inl"
#include "collectives/algorithms/zero_copy.inl"
#include "collectives/p2p/plans.hpp"
#include "collectives/p2p/registered.hpp"
#include "collectives/slices.hpp"

namespace gantry {

namespace {

using protocol::clipped;
using protocol::FlaggedPlan;
using protocol::Group;
using protocol::StagedPlan;

// A unit with flags: an LL packet, or an LL128 line.
struct FlaggedUnit {
  std::int64_t payload_bytes;
  std::int64_t bytes;
};
constexpr FlaggedUnit kLlUnit{8, sizeof(protocol::LlPacket)};
constexpr FlaggedUnit kLl128Unit{protocol::kLl128PayloadBytes, sizeof(protocol::Ll128Line)};

// Bytes between two ranks, and the pieces that blocks move.
struct Pieces {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

// Counts one operation of a group, rank by rank.
class PeerCount {
 public:
  PeerCount(const ResolvedCall& call, int ranks, bool opens, const TransferVisitor& visit)
      : call_(call),
        what_(call.what),
        blocks_(kernel_blocks(call)),
        opening_{.is_possible = opens && is_worth_opening(call), .arrays = protocol::OpenArrays{}},
        visit_(visit) {
    group_.size = ranks;
    group_.layout = protocol::layout_for(ranks);
  }

  Steps count() {
    Steps steps;
    for (group_.rank = 0; group_.rank < group_.size; ++group_.rank) {
      const std::int64_t of_rank = count_rank();
      steps.peers = std::max(steps.peers, of_rank);
    }
    return steps;
  }

 private:
  // Counts what this rank writes, and fetches. Returns its steps.
  std::int64_t count_rank() const {
    switch (call_.choice.algorithm) {
      case Algorithm::ll:
        return flagged_one_shot(kLlUnit);
      case Algorithm::ll128:
        return flagged_one_shot(kLl128Unit);
      case Algorithm::ll128_two_shot:
        return flagged_two_shot();
      case Algorithm::two_shot:
        return two_shot(plan_two_shot(group_, call_, blocks_, opening_));
      case Algorithm::zero_copy:
        return zero_copy();
      case Algorithm::copy:
        return copy();
      case Algorithm::automatic:
      case Algorithm::one_shot:
      case Algorithm::nccl:
      case Algorithm::host:
        return one_shot(plan_one_shot(group_, call_, blocks_, opening_));
    }
    __builtin_unreachable();
  }

  template <class Visit>
  void for_each_peer_in(RankSet ranks, Visit visit) const {
    for (int p = 0; p < group_.size; ++p) {
      if (p != group_.rank && has(ranks, p)) visit(p);
    }
  }
  void write(int to, const Pieces& pieces) const { move(group_.rank, to, pieces); }
  void fetch(int from, const Pieces& pieces) const { move(from, group_.rank, pieces); }
  void move(int from, int to, const Pieces& pieces) const {
    if (pieces.bytes > 0) visit_({from, to, pieces.bytes, pieces.count, Way::peers});
  }

  // The units of `bytes` in the runs of the blocks, which divide `most` bytes.
  Pieces units_of(std::int64_t bytes, std::int64_t most, const FlaggedUnit& unit) const {
    if (bytes <= 0) return {};
    const std::int64_t run = divided_up(divided_up(most, unit.payload_bytes), blocks_);
    const std::int64_t units = divided_up(bytes, unit.payload_bytes);
    return {units * unit.bytes, divided_up(units, run)};
  }

  std::int64_t flagged_one_shot(const FlaggedUnit& unit) const {
    const FlaggedPlan plan = plan_flagged_one_shot(group_, call_);
    const Pieces slice = units_of(plan.bytes, plan.bytes, unit);
    for_each_peer_in(plan.send_to, [&](int p) { write(p, slice); });
    return 1;
  }

  std::int64_t flagged_two_shot() const {
    const FlaggedPlan plan = plan_flagged_two_shot(group_, call_);
    const auto slice_of = [&](int rank) {
      if (!has(plan.reducers, rank)) return Pieces{};
      const std::int64_t bytes =
          clipped(plan.array_bytes, index_among(plan.reducers, rank) * plan.bytes, plan.bytes);
      return units_of(bytes, plan.bytes, kLl128Unit);
    };
    for_each_peer_in(plan.send_to, [&](int p) { write(p, slice_of(p)); });
    for_each_peer_in(plan.receivers, [&](int p) { write(p, slice_of(group_.rank)); });
    return 2;
  }

  std::int64_t one_shot(const StagedPlan& plan) const {
    if (plan.open.is_possible) return on_open_arrays(plan, /*shots=*/1);
    for_each_peer_in(all_ranks(group_.size), [&](int p) {
      const std::int64_t bytes = plan.slices(p).send.bytes;
      if (bytes > 0) write(p, {bytes, divided_up(bytes, plan.chunk_bytes)});
    });
    return steps_of(plan);
  }

  std::int64_t two_shot(const StagedPlan& plan) const {
    if (plan.open.is_possible) return on_open_arrays(plan, /*shots=*/2);
    if (plan.bytes == 0) return steps_of(plan) + 1;
    const RankSet reducers = plan.route.reducers;
    // All chunks but the last have one size.
    const std::int64_t chunks = plan.bytes / plan.chunk_bytes;
    const std::int64_t rest = plan.bytes % plan.chunk_bytes;
    const auto slice_of = [&](int rank) {
      if (!has(reducers, rank)) return Pieces{};
      const std::int64_t at = index_among(reducers, rank) * plan.slice_bytes;
      const std::int64_t of_chunk = clipped(plan.chunk_bytes, at, plan.slice_bytes);
      const std::int64_t of_rest = clipped(rest, at, plan.slice_bytes);
      return Pieces{chunks * of_chunk + of_rest,
                    (of_chunk > 0 ? chunks : 0) + (of_rest > 0 ? 1 : 0)};
    };
    for_each_peer_in(plan.route.sends_to(group_.rank), [&](int p) { write(p, slice_of(p)); });
    for_each_peer_in(plan.route.receivers, [&](int p) { write(p, slice_of(group_.rank)); });
    return steps_of(plan) + 1;
  }

  // The steps of the first shot of an operation through staging. One that uses both buffers has an
  // entry barrier and an exit barrier.
  std::int64_t steps_of(const StagedPlan& plan) const {
    const std::int64_t per_step = plan.chunk_bytes * blocks_;
    const std::int64_t chunks = per_step == 0 ? 0 : divided_up(plan.bytes, per_step);
    return std::max<std::int64_t>(chunks, 1) + (plan.both_buffers ? 2 : 0);
  }

  // Open arrays take an entry barrier and an exit barrier.
  std::int64_t on_open_arrays(const StagedPlan& plan, int shots) const {
    const bool reduces = !plan.how.copies;
    const bool has_slices = !reduces && shots == 1;
    const std::int64_t own = has_slices ? plan.bytes : plan.open.bytes;
    const std::int64_t part = protocol::block_slice(own, blocks_);
    const auto pieces = [&](std::int64_t bytes) {
      return bytes > 0 ? Pieces{bytes, divided_up(bytes, part)} : Pieces{};
    };
    for_each_peer_in(all_ranks(group_.size), [&](int p) {
      // Stored by this rank, or fetched by the peer.
      if (has_slices) return write(p, pieces(plan.slices(p).send.bytes));
      if (reduces || p == plan.open.root) fetch(p, pieces(own));
      if (has(plan.open.receivers, p)) write(p, pieces(own));
    });
    return 2;
  }

  // This rank's slice of registered arrays, in the parts of `blocks` blocks.
  Pieces reduced_slice(int blocks) const {
    const ReducedSlices slices = reduced_slices(what_, group_.size);
    const std::int64_t bytes = slices.of(group_.rank).count;
    if (bytes == 0) return {};
    blocks = std::min(blocks, most_zero_copy_blocks(slices.longest()));
    return {bytes, divided_up(bytes, protocol::block_slice(bytes, blocks))};
  }
  void fetch_inputs(const Pieces& slice) const {
    const bool is_broadcast = what_.kind == CollectiveKind::broadcast;
    for_each_peer_in(is_broadcast ? only(what_.root) : all_ranks(group_.size),
                     [&](int p) { fetch(p, slice); });
  }

  std::int64_t zero_copy() const {
    const Pieces slice = reduced_slice(blocks_);
    fetch_inputs(slice);
    if (what_.kind != CollectiveKind::reduce_scatter) {
      const RankSet receivers =
          set_of(two_shot_roles(what_.kind).receivers, what_.root, group_.size);
      for_each_peer_in(receivers, [&](int p) { write(p, slice); });
    }
    return 2;
  }

  std::int64_t copy() const {
    const RankSet all = all_ranks(group_.size);
    if (what_.kind == CollectiveKind::all_reduce) {
      const Pieces slice = reduced_slice(protocol::kMaxBlocks);
      fetch_inputs(slice);
      for_each_peer_in(all, [&](int p) { write(p, {slice.bytes, 1}); });
    } else if (what_.kind == CollectiveKind::broadcast) {
      if (group_.rank == what_.root) {
        for_each_peer_in(all, [&](int p) { write(p, {what_.bytes(), 1}); });
      }
    } else {
      for_each_peer_in(all, [&](int p) {
        write(p, {even_slices(what_, group_.rank, p).send.bytes, 1});
      });
    }
    return 2;
  }

  static int index_among(RankSet ranks, int rank) {
    return std::popcount(ranks & (only(rank) - 1));
  }

  const ResolvedCall& call_;
  const Descriptor& what_;
  Group group_;
  int blocks_;
  Opening opening_;
  const TransferVisitor& visit_;
};

}  // namespace

Steps count_over_peers(const ResolvedCall& call, int ranks, bool opens,
                       const TransferVisitor& visit) {
  return PeerCount(call, ranks, opens, visit).count();
}

Steps count_message_over_peers(const Descriptor& what, int from, int to, int ranks, bool opens,
                               const TransferVisitor& visit) {
  const std::int64_t bytes = what.bytes();
  if (opens && bytes >= protocol::kLeastOpenMessage) {
    visit({from, to, bytes, divided_up(bytes, protocol::open_part(bytes)), Way::peers});
    return {.peers = 1};
  }
  const protocol::Chunks chunks = protocol::chunks_of(protocol::layout_for(ranks), bytes);
  if (bytes > 0) visit({from, to, bytes, chunks.count, Way::peers});
  return {.peers = divided_up(chunks.count, protocol::kConnectionBlocks)};
}

}  // namespace gantry
