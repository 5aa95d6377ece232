#include "collectives/p2p/plans.hpp"

#include <algorithm>

#include "collectives/call.hpp"
#include "collectives/reduction.hpp"

namespace gantry {

namespace {

using protocol::Group;
using protocol::OneShot;
using protocol::TwoShot;

// Slices in staging are aligned to this, so that kernels read aligned words.
constexpr std::int64_t kGrain = 16;

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }
std::int64_t rounded_down(std::int64_t bytes) { return bytes / kGrain * kGrain; }

std::int64_t width_of(const Descriptor& what) {
  return static_cast<std::int64_t>(element_size(what.dtype));
}

std::uint32_t bit(int rank) { return std::uint32_t{1} << rank; }

// Bytes of a staging slot of one block and writer.
std::int64_t slot_capacity(const Group& group, bool both_buffers, int slots, int blocks) {
  const std::int64_t bytes = std::int64_t{group.layout.staging_bytes} * (both_buffers ? 2 : 1);
  return rounded_down(rounded_down(bytes / group.size) / (slots * blocks));
}

// True if an operation has more chunks than its FIFO has slots: see Note [Double buffering].
bool needs_both_buffers(std::int64_t bytes, std::int64_t chunk_bytes, int slots, int blocks) {
  return bytes > chunk_bytes * slots * blocks;
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
  plan.how = reduce_plan(call.what, group.size);
  plan.in = static_cast<const std::byte*>(call.in);
  plan.out = static_cast<std::byte*>(call.out);
}

void set_slices(OneShot& plan, const CollectiveCall& call) {
  const CollectiveKind kind = call.what.kind;
  const auto width = width_of(call.what);
  for_each_peer(call, plan.group.rank, plan.group.size, [&](int p, PeerSlices slices) {
    if (p == plan.group.rank) {
      // The root's own slice is in place (broadcast), or is copied from `in` (gather).
      if (kind == CollectiveKind::broadcast) slices = {};
      if (kind == CollectiveKind::gather) slices.send = {};
    }
    plan.send_offset[p] = slices.send.at;
    plan.send_bytes[p] = slices.send.bytes;
    plan.receive_offset[p] = slices.receive.at;
    plan.receive_bytes[p] = slices.receive.bytes;
    if (!call.is_uneven()) return;
    const std::int64_t sends = slices.send.bytes / width;
    const std::int64_t gets = slices.receive.bytes / width;
    plan.digests[p] = pair_digest(plan.digests[p], sends, gets);
    plan.expected[p] = pair_digest(plan.expected[p], gets, sends);
  });
}

}  // namespace

protocol::ReducePlan reduce_plan(const Descriptor& what, int ranks) {
  protocol::ReducePlan how;
  how.dtype = what.dtype;
  how.copies = !reduces(what.kind);
  if (how.copies) return how;
  const Reduction reduction = reduction_for(what.op, what.dtype, ranks, name(what.kind));
  how.op = reduction.op;
  how.divisor = reduction.divisor;
  how.scale = what.scale;
  return how;
}

OneShot plan_one_shot(const Group& group, const CollectiveCall& call, int blocks) {
  OneShot plan;
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.how = reduce_plan(call.what, group.size);
  plan.in = static_cast<const std::byte*>(call.in);
  plan.out = static_cast<std::byte*>(call.out);
  const std::uint32_t digest = call.what.hash();
  std::fill_n(plan.digests, group.size, digest);
  std::fill_n(plan.expected, group.size, digest);
  const auto most = [&](bool both_buffers) {
    return slot_capacity(group, both_buffers, protocol::kOneShotSlots, blocks);
  };
  plan.chunk_bytes = most(false);
  set_slices(plan, call);
  plan.uneven = call.is_uneven();
  if (plan.uneven) return plan;
  const std::int64_t bytes = call.what.count * width_of(call.what);
  plan.both_buffers = needs_both_buffers(bytes, plan.chunk_bytes, protocol::kOneShotSlots, blocks);
  plan.chunk_bytes = std::min(most(plan.both_buffers), rounded_up((bytes + blocks - 1) / blocks));
  return plan;
}

protocol::LlOneShot plan_ll_one_shot(const Group& group, const CollectiveCall& call) {
  protocol::LlOneShot plan;
  describe(plan, group, call);
  plan.bytes = static_cast<std::int32_t>(call.what.count * width_of(call.what));
  for_each_peer(call, group.rank, group.size, [&](int p, PeerSlices slices) {
    // Slices of one size are adjacent, or all the same.
    if (slices.send.bytes > 0 && p != group.rank) {
      plan.send_to |= bit(p);
    }
    if (slices.send.at > 0) plan.send_stride = plan.bytes;
    // The root of a broadcast has its bytes in place.
    const bool in_place = p == group.rank && call.what.kind == CollectiveKind::broadcast;
    if (slices.receive.bytes > 0 && !in_place) plan.receive_from |= bit(p);
    if (slices.receive.at > 0) plan.receive_stride = plan.bytes;
  });
  return plan;
}

namespace {

// Sets the senders, reducers and receivers of a two-shot; returns the number of reducers.
template <class Plan>
int assign_roles(Plan& plan, const Descriptor& what) {
  const int ranks = plan.group.size;
  const std::uint32_t all = protocol::all_ranks(ranks);
  plan.senders = plan.reducers = plan.receivers = all;
  if (what.kind == CollectiveKind::all_reduce) return ranks;
  const std::uint32_t root = bit(what.root);
  plan.reducers = all & ~root;
  (what.kind == CollectiveKind::broadcast ? plan.senders : plan.receivers) = root;
  if (what.kind == CollectiveKind::broadcast) plan.receivers = plan.reducers;
  return ranks - 1;
}

}  // namespace

TwoShot plan_two_shot(const Group& group, const CollectiveCall& call, int blocks) {
  const Descriptor& what = call.what;
  TwoShot plan;
  describe(plan, group, call);
  plan.bytes = what.count * width_of(what);
  const int reducers = assign_roles(plan, what);
  const bool both = (plan.senders & plan.reducers) != 0 && (plan.receivers & plan.reducers) != 0;
  plan.slot_slices = both ? 2 : 1;
  const auto most = [&](bool both_buffers) {
    const auto capacity = slot_capacity(group, both_buffers, protocol::kTwoShotSlots, blocks);
    return rounded_down(capacity / plan.slot_slices) * reducers;
  };
  plan.both_buffers = needs_both_buffers(plan.bytes, most(false), protocol::kTwoShotSlots, blocks);
  plan.chunk_bytes =
      std::min(most(plan.both_buffers), rounded_up((plan.bytes + blocks - 1) / blocks));
  plan.slice_bytes = rounded_up((plan.chunk_bytes + reducers - 1) / reducers);
  return plan;
}

protocol::Ll128TwoShot plan_ll128_two_shot(const Group& group, const CollectiveCall& call) {
  const Descriptor& what = call.what;
  protocol::Ll128TwoShot plan;
  describe(plan, group, call);
  plan.bytes = static_cast<std::int32_t>(what.count * width_of(what));
  const int reducers = assign_roles(plan, what);
  const std::int32_t lines =
      (plan.bytes + protocol::kLl128PayloadBytes - 1) / protocol::kLl128PayloadBytes;
  plan.slice_lines = (lines + reducers - 1) / reducers;
  return plan;
}

protocol::Message plan_message(const Group& group, const CollectiveCall& call) {
  protocol::Message plan;
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.peer = call.what.root;
  plan.bytes = call.what.count * width_of(call.what);
  plan.data = call.what.kind == CollectiveKind::send
                  ? static_cast<std::byte*>(const_cast<void*>(call.in))
                  : static_cast<std::byte*>(call.out);
  // Both sides must agree on the message, not on their own numbers.
  Descriptor travels{
      .count = call.what.count, .kind = CollectiveKind::send, .dtype = call.what.dtype};
  plan.digest = travels.hash();
  return plan;
}

protocol::MessagePlan plan_messages(const Group& group, std::span<const ResolvedCall> calls) {
  protocol::MessagePlan plan;
  plan.group = group;
  plan.messages.reserve(calls.size());
  // Sends first; messages of one pair stay in order, side by side.
  for (const CollectiveKind kind : {CollectiveKind::send, CollectiveKind::recv}) {
    for (int peer = 0; peer < group.size; ++peer) {
      for (const ResolvedCall& call : calls) {
        if (call.what.kind != kind || call.what.root != peer) continue;
        const protocol::Message one = plan_message(group, call);
        plan.messages.push_back({one.call, one.data, one.bytes, one.digest, one.peer});
      }
    }
    if (kind == CollectiveKind::send) plan.sends = static_cast<std::int32_t>(plan.messages.size());
  }
  return plan;
}

}  // namespace gantry
