#include "collectives/p2p/plans.hpp"

#include <algorithm>
#include <bit>

#include "collectives/call.hpp"
#include "collectives/reduction.hpp"
#include "collectives/slices.hpp"
#include "kernels/peers/nary_plan.hpp"

namespace gantry {

namespace {

using protocol::FlaggedPlan;
using protocol::Group;
using protocol::OpenPlan;
using protocol::StagedPlan;
using protocol::UnevenPlan;

// Slices in staging are aligned to this, so that kernels read aligned words.
constexpr std::int64_t kGrain = 16;

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }
std::int64_t rounded_down(std::int64_t bytes) { return bytes / kGrain * kGrain; }

// Bytes of a staging slot of one block and writer.
std::int64_t slot_capacity(const Group& group, bool both_buffers, int slots, int blocks) {
  const std::int64_t bytes = std::int64_t{group.layout.staging_bytes} * (both_buffers ? 2 : 1);
  return rounded_down(rounded_down(bytes / group.size) / (slots * blocks));
}

// A digest of a call, and of what one rank sends to and receives from one peer.
std::uint32_t pair_digest(std::uint32_t digest, std::int64_t sends, std::int64_t gets) {
  std::uint64_t mixed = (static_cast<std::uint64_t>(sends) ^ digest) * 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ mixed >> 29 ^ static_cast<std::uint64_t>(gets)) * 0xbf58476d1ce4e5b9ULL;
  return protocol::digest_of(static_cast<std::uint32_t>(mixed >> 32) ^ digest);
}

// Sets the members that plans with one digest have in common.
template <class Plan>
void describe(Plan& plan, const Group& group, const CollectiveCall& call) {
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.digest = call.what.hash();
  plan.how = reduce_by(call.what, group.size);
  plan.in = static_cast<const std::byte*>(call.in);
  plan.out = static_cast<std::byte*>(call.out);
}

Route route_of(const Roles& roles, const Descriptor& what, int size) {
  return {set_of(roles.senders, what.root, size), set_of(roles.reducers, what.root, size),
          set_of(roles.receivers, what.root, size)};
}

Route one_shot_route(const Descriptor& what, int size) {
  Route route = route_of(one_shot_roles(what.kind), what, size);
  // The root of a broadcast has its bytes in place.
  if (what.kind == CollectiveKind::broadcast) route.reducers &= ~route.senders;
  return route;
}

// Divides an operation into chunks of `parts` slices: see Notes [Chunks] and [Double buffering].
void set_chunks(StagedPlan& plan, int slots, int blocks, std::int64_t parts) {
  const auto most = [&](bool both_buffers) {
    const std::int64_t capacity = slot_capacity(plan.group, both_buffers, slots, blocks);
    return rounded_down(capacity / plan.slot_slices) * parts;
  };
  plan.both_buffers = plan.open.is_possible || plan.bytes > most(false) * slots * blocks;
  plan.chunk_bytes =
      std::min(most(plan.both_buffers), rounded_up((plan.bytes + blocks - 1) / blocks));
  plan.slice_bytes = rounded_up((plan.chunk_bytes + parts - 1) / parts);
}

// Slices of one size are adjacent, or all the same.
template <class Plan>
void set_strides(Plan& plan, CollectiveKind kind) {
  const Roles& roles = one_shot_roles(kind);
  if (!roles.sends_one) plan.send_stride = plan.bytes;
  if (!roles.receives_one) plan.receive_stride = plan.bytes;
}

// Access to the arrays of all ranks, in place of `shots` shots through staging.
OpenPlan open_plan(const Group& group, const CollectiveCall& call, const Opening& opening,
                   int shots) {
  const Descriptor& what = call.what;
  const bool is_reduced = reduces(what.kind);
  // Else each rank writes its slices to the ranks that they are for.
  const bool has_slices = is_reduced || shots == 2;
  const bool is_scattered = what.kind == CollectiveKind::reduce_scatter;
  OpenPlan plan;
  const std::int64_t words = is_scattered ? kGrain
                             : is_reduced ? 1
                                          : std::int64_t{sizeof(std::int64_t)};
  plan.is_possible = what.bytes() > 0 && (!has_slices || what.bytes() % words == 0);
  if (!plan.is_possible) return plan;
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % kGrain == 0;
  };
  plan.is_open = opening.arrays && (!has_slices || (is_aligned(call.in) && is_aligned(call.out)));
  if (plan.is_open) plan.at_peers = *opening.arrays;
  if (!has_slices) {
    plan.stores =
        what.kind == CollectiveKind::all_gather || what.kind == CollectiveKind::all_to_all;
    return plan;
  }
  const Part slice = reduced_slices(what, group.size).of(group.rank);
  plan.bytes = slice.count;
  plan.from = slice.begin;
  plan.to = is_scattered ? 0 : slice.begin;
  plan.receivers = is_scattered
                       ? only(group.rank)
                       : set_of(two_shot_roles(what.kind).receivers, what.root, group.size);
  if (!is_reduced) plan.root = what.root;
  return plan;
}

// Ranks that disagree on `is_possible`, because one gave up its registrations, have different
// calls.
void set_open(StagedPlan& plan, const CollectiveCall& call, const Opening& opening, int shots) {
  constexpr std::uint32_t kMixed = 0x9e3779b8;
  plan.open = open_plan(plan.group, call, opening, shots);
  if (plan.open.is_possible) plan.digest = protocol::digest_of(plan.digest ^ kMixed);
}

}  // namespace

protocol::ReduceBy reduce_by(const Descriptor& what, int ranks) {
  protocol::ReduceBy how;
  how.copies = !reduces(what.kind);
  if (how.copies) return how;
  const NaryReduction reduction = reduction_for(what.op, what.dtype, ranks, name(what.kind));
  const kernels::NaryKernel kernel = kernels::nary_kernel(reduction.op, what.dtype);
  how.op = kernel.op;
  how.dtype = kernel.dtype;
  how.divisor = reduction.divisor;
  how.scale = what.scale;
  return how;
}

int kernel_blocks(const ResolvedCall& call) {
  // Blocks of an operation with unequal counts, whose size is not known to all ranks.
  constexpr int kUnevenBlocks = 32;
  // Blocks that move less than this cost less than their signals.
  constexpr std::int64_t kMinBlockBytes = 1024;
  if (call.is_uneven()) {
    return call.what.blocks != 0 ? std::min<int>(call.what.blocks, kUnevenBlocks) : kUnevenBlocks;
  }
  const std::int64_t most = std::max<std::int64_t>(1, call.message_bytes / kMinBlockBytes);
  return static_cast<int>(std::clamp<std::int64_t>(call.choice.blocks, 1, most));
}

bool is_worth_opening(const ResolvedCall& call) {
  // kLeastOpenBytes for operations of one shot in which some ranks only send, or only receive.
  constexpr std::int64_t kLeastOneWayOpenBytes = std::int64_t{8} << 20;
  static_assert(kLeastOneWayOpenBytes >= kLeastOpenBytes);
  const CollectiveKind kind = call.what.kind;
  const bool is_both_ways = call.choice.algorithm == Algorithm::two_shot ||
                            kind == CollectiveKind::all_reduce ||
                            kind == CollectiveKind::reduce_scatter;
  return call.message_bytes >= (is_both_ways ? kLeastOpenBytes : kLeastOneWayOpenBytes);
}

StagedPlan plan_one_shot(const Group& group, const CollectiveCall& call, int blocks,
                         const Opening& opening) {
  StagedPlan plan;
  describe(plan, group, call);
  if (opening.is_possible) set_open(plan, call, opening, /*shots=*/1);
  plan.bytes = call.what.bytes();
  plan.route = one_shot_route(call.what, group.size);
  set_strides(plan, call.what.kind);
  set_chunks(plan, protocol::kOneShotSlots, blocks, /*parts=*/1);
  return plan;
}

UnevenPlan plan_uneven(const Group& group, const CollectiveCall& call, int blocks) {
  UnevenPlan plan;
  describe(plan, group, call);
  plan.how = {.copies = true};
  const auto width = static_cast<std::int64_t>(element_size(call.what.dtype));
  for_each_peer(call, group.rank, group.size, [&](int p, const PeerSlices& slices) {
    plan.peers[p] = slices;
    const std::int64_t sends = slices.send.bytes / width;
    const std::int64_t gets = slices.receive.bytes / width;
    plan.digests[p] = pair_digest(plan.digest, sends, gets);
    plan.expected[p] = pair_digest(plan.digest, gets, sends);
    plan.bytes = std::max({plan.bytes, slices.send.bytes, slices.receive.bytes});
  });
  plan.chunk_bytes = slot_capacity(group, false, protocol::kOneShotSlots, blocks);
  plan.slice_bytes = plan.chunk_bytes;
  return plan;
}

StagedPlan plan_two_shot(const Group& group, const CollectiveCall& call, int blocks,
                         const Opening& opening) {
  StagedPlan plan;
  describe(plan, group, call);
  if (opening.is_possible) set_open(plan, call, opening, /*shots=*/2);
  plan.bytes = call.what.bytes();
  plan.route = route_of(two_shot_roles(call.what.kind), call.what, group.size);
  const Route& route = plan.route;
  const bool both =
      (route.senders & route.reducers) != 0 && (route.receivers & route.reducers) != 0;
  plan.slot_slices = both ? 2 : 1;
  set_chunks(plan, protocol::kTwoShotSlots, blocks, std::popcount(route.reducers));
  return plan;
}

FlaggedPlan plan_flagged_one_shot(const Group& group, const CollectiveCall& call) {
  FlaggedPlan plan;
  describe(plan, group, call);
  plan.bytes = static_cast<std::int32_t>(call.what.bytes());
  set_strides(plan, call.what.kind);
  if (plan.bytes == 0) return plan;  // the entries do all
  const Route route = one_shot_route(call.what, group.size);
  plan.send_to = route.sends_to(group.rank) & ~only(group.rank);
  plan.receive_from = route.receives_from(group.rank);
  if (copies_own(call)) plan.receive_from = only(group.rank);
  return plan;
}

FlaggedPlan plan_flagged_two_shot(const Group& group, const CollectiveCall& call) {
  constexpr std::int32_t kUnitBytes = protocol::kLl128PayloadBytes;
  FlaggedPlan plan;
  describe(plan, group, call);
  const Route route = route_of(two_shot_roles(call.what.kind), call.what, group.size);
  plan.array_bytes = static_cast<std::int32_t>(call.what.bytes());
  const std::int32_t units = (plan.array_bytes + kUnitBytes - 1) / kUnitBytes;
  const std::int32_t reducers = std::popcount(route.reducers);
  plan.bytes = (units + reducers - 1) / reducers * kUnitBytes;
  plan.send_stride = plan.receive_stride = plan.bytes;
  plan.send_to = route.sends_to(group.rank) & ~only(group.rank);
  plan.receive_from = route.receives_from(group.rank);
  plan.reducers = route.reducers;
  plan.receivers = route.receivers;
  return plan;
}

protocol::Message plan_message(const Group& group, const CollectiveCall& call, std::byte* at_peer) {
  protocol::Message plan;
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.peer = call.what.root;
  plan.bytes = call.what.bytes();
  plan.data = call.what.kind == CollectiveKind::send
                  ? static_cast<std::byte*>(const_cast<void*>(call.in))
                  : static_cast<std::byte*>(call.out);
  // Both sides must agree on the message, not on their own numbers.
  Descriptor travels{
      .count = call.what.count, .kind = CollectiveKind::send, .dtype = call.what.dtype};
  plan.digest = travels.hash();
  plan.at_peer = at_peer;
  return plan;
}

protocol::MessagePlan plan_messages(const Group& group, std::span<const ResolvedCall> calls,
                                    std::span<std::byte* const> at_peers) {
  protocol::MessagePlan plan;
  plan.group = group;
  plan.messages.reserve(calls.size());
  // Sends first; messages of one pair stay in order, side by side.
  for (const CollectiveKind kind : {CollectiveKind::send, CollectiveKind::recv}) {
    for (int peer = 0; peer < group.size; ++peer) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].what.kind != kind || calls[i].what.root != peer) continue;
        const protocol::Message one = plan_message(group, calls[i], at_peers[i]);
        plan.messages.push_back({one.call, one.data, one.bytes, one.digest, one.peer, one.at_peer});
      }
    }
    if (kind == CollectiveKind::send) plan.sends = static_cast<std::int32_t>(plan.messages.size());
  }
  return plan;
}

}  // namespace gantry
