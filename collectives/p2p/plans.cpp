#include "collectives/p2p/plans.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives/reduction.hpp"
#include "collectives/shares.hpp"

namespace gantry {

namespace {

using protocol::Exchange;
using protocol::Group;
using protocol::Relay;

// Offers and parts begin at multiples of this in staging, so that peers read whole words.
constexpr std::int64_t kGrain = 16;

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }
std::int64_t rounded_down(std::int64_t bytes) { return bytes / kGrain * kGrain; }

std::int64_t width_of(const Descriptor& what) {
  return static_cast<std::int64_t>(element_size(what.dtype));
}

std::uint32_t bit(int rank) { return std::uint32_t{1} << rank; }

// What a block of a chain moves in one step: enough that signals cost little beside it; less of
// small arrays, because the last rank waits for a step of every other one.
constexpr std::int64_t kMostChainStep = 32 << 10;
constexpr std::int64_t kLeastChainStep = 4 << 10;
constexpr std::int64_t kChainSteps = 16;

// Staging for one block, step and writer.
std::int64_t slot_capacity(const Group& group, bool whole, int ring, int blocks) {
  const std::int64_t bytes = std::int64_t{group.layout.staging_bytes} * (whole ? 2 : 1);
  return rounded_down(rounded_down(bytes / group.size) / (ring * blocks));
}

// True for what would take more steps than a ring has slots: see Note [Whole staging].
bool takes_whole(std::int64_t bytes, std::int64_t step_bytes, int ring, int blocks) {
  return bytes > step_bytes * ring * blocks;
}

// A digest of a call and of what one rank sends to another in it and gets from it.
std::uint32_t pair_digest(std::uint32_t digest, std::int64_t sends, std::int64_t gets) {
  std::uint64_t mixed = (static_cast<std::uint64_t>(sends) ^ digest) * 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ mixed >> 29 ^ static_cast<std::uint64_t>(gets)) * 0xbf58476d1ce4e5b9ULL;
  return protocol::digest_of(static_cast<std::uint32_t>(mixed >> 32) ^ digest);
}

// What plans for one digest of the call have in common.
template <class Plan>
void describe(Plan& plan, const Group& group, const CollectiveCall& call) {
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.digest = call.what.hash();
  plan.how = combination(call.what, group.size);
  plan.in = static_cast<const std::byte*>(call.in);
  plan.out = static_cast<std::byte*>(call.out);
}

void share_out(Exchange& plan, const CollectiveCall& call) {
  const CollectiveKind kind = call.what.kind;
  const auto width = width_of(call.what);
  for_each_share(call, plan.group.rank, plan.group.size, [&](int p, PeerShares shares) {
    if (p == plan.group.rank) {
      // The root has its own bytes in place (broadcast), or takes them from `in` (gather).
      if (kind == CollectiveKind::broadcast) shares = {};
      if (kind == CollectiveKind::gather) shares.offer = {};
    }
    plan.offer_at[p] = shares.offer.at;
    plan.offer_bytes[p] = shares.offer.bytes;
    plan.take_at[p] = shares.take.at;
    plan.take_bytes[p] = shares.take.bytes;
    if (!call.is_uneven()) return;
    const std::int64_t sends = shares.offer.bytes / width;
    const std::int64_t gets = shares.take.bytes / width;
    plan.digests[p] = pair_digest(plan.digests[p], sends, gets);
    plan.expected[p] = pair_digest(plan.expected[p], gets, sends);
  });
}

}  // namespace

protocol::Combination combination(const Descriptor& what, int ranks) {
  protocol::Combination how;
  how.dtype = what.dtype;
  how.copies = !reduces(what.kind);
  if (how.copies) return how;
  const Reduction fold = reduction_for(what.op, what.dtype, ranks, name(what.kind));
  how.op = fold.op;
  how.divisor = fold.divisor;
  how.scale = what.scale;
  return how;
}

Exchange plan_exchange(const Group& group, const CollectiveCall& call, int blocks) {
  Exchange plan;
  plan.group = group;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.how = combination(call.what, group.size);
  plan.in = static_cast<const std::byte*>(call.in);
  plan.out = static_cast<std::byte*>(call.out);
  const std::uint32_t digest = call.what.hash();
  std::fill_n(plan.digests, group.size, digest);
  std::fill_n(plan.expected, group.size, digest);
  const auto most = [&](bool whole) {
    return slot_capacity(group, whole, protocol::kExchangeRing, blocks);
  };
  plan.step_bytes = most(false);
  share_out(plan, call);
  plan.uneven = call.is_uneven();
  if (plan.uneven) return plan;
  const std::int64_t bytes = call.what.count * width_of(call.what);
  plan.whole = takes_whole(bytes, plan.step_bytes, protocol::kExchangeRing, blocks);
  plan.step_bytes = std::min(most(plan.whole), rounded_up((bytes + blocks - 1) / blocks));
  return plan;
}

protocol::WireExchange plan_wire_exchange(const Group& group, const CollectiveCall& call) {
  protocol::WireExchange plan;
  describe(plan, group, call);
  plan.bytes = static_cast<std::int32_t>(call.what.count * width_of(call.what));
  for_each_share(call, group.rank, group.size, [&](int p, PeerShares shares) {
    // Shares of one size lie side by side, or are all the same one.
    if (shares.offer.bytes > 0 && p != group.rank) {
      plan.offers |= bit(p);
    }
    if (shares.offer.at > 0) plan.offer_stride = plan.bytes;
    // The root of a broadcast has its bytes in place.
    const bool in_place = p == group.rank && call.what.kind == CollectiveKind::broadcast;
    if (shares.take.bytes > 0 && !in_place) plan.takes |= bit(p);
    if (shares.take.at > 0) plan.take_stride = plan.bytes;
  });
  return plan;
}

namespace {

// Sets who gives, makes and gets the parts of an array; returns how many owners there are.
template <class Plan>
int assign_roles(Plan& plan, const Descriptor& what) {
  const int ranks = plan.group.size;
  const std::uint32_t all = protocol::everyone(ranks);
  plan.sources = plan.owners = plan.takers = all;
  if (what.kind == CollectiveKind::all_reduce) return ranks;
  const std::uint32_t root = bit(what.root);
  plan.owners = all & ~root;
  (what.kind == CollectiveKind::broadcast ? plan.sources : plan.takers) = root;
  if (what.kind == CollectiveKind::broadcast) plan.takers = plan.owners;
  return ranks - 1;
}

}  // namespace

Relay plan_relay(const Group& group, const CollectiveCall& call, int blocks) {
  const Descriptor& what = call.what;
  Relay plan;
  describe(plan, group, call);
  plan.bytes = what.count * width_of(what);
  const int owners = assign_roles(plan, what);
  const bool both = (plan.sources & plan.owners) != 0 && (plan.takers & plan.owners) != 0;
  plan.slot_places = both ? 2 : 1;
  const auto most = [&](bool whole) {
    const auto capacity = slot_capacity(group, whole, protocol::kRelayRing, blocks);
    return rounded_down(capacity / plan.slot_places) * owners;
  };
  plan.whole = takes_whole(plan.bytes, most(false), protocol::kRelayRing, blocks);
  plan.step_bytes = std::min(most(plan.whole), rounded_up((plan.bytes + blocks - 1) / blocks));
  plan.part_bytes = rounded_up((plan.step_bytes + owners - 1) / owners);
  return plan;
}

protocol::Chain plan_chain(const Group& group, const CollectiveCall& call, int blocks) {
  const Descriptor& what = call.what;
  const int rank = group.rank;
  const int last = group.size - 1;
  protocol::Chain plan;
  describe(plan, group, call);
  plan.bytes = what.count * width_of(what);
  int slots = protocol::kChainRing;
  if (what.kind == CollectiveKind::broadcast) {
    const int position = (rank - what.root + group.size) % group.size;
    plan.previous = position == 0 ? -1 : (rank + last) % group.size;
    plan.next = position == last ? -1 : (rank + 1) % group.size;
  } else {
    // Nobody sends to the first rank, so that its ring is free for the result.
    plan.rings = what.root == 0 ? 1 : 2;
    slots = plan.rings * protocol::kChainRing + 1;
    plan.previous = rank - 1;
    plan.next = rank == last ? what.root : rank + 1;
    plan.origin = rank == what.root && rank != last ? last : -1;
    plan.is_last = rank == last;
    // A longer lag would wait for slots that are only free once the root has taken what is there.
    const int hops = last - what.root;
    plan.lag = std::min(2 * group.size, protocol::kChainRing * (hops + 1) - 1);
    // An average is divided in the end.
    if (rank != last) plan.how.divisor = 1;
  }
  const auto most = [&](bool whole) {
    const std::int64_t bytes = std::int64_t{group.layout.staging_bytes} * (whole ? 2 : 1);
    return std::min(kMostChainStep, rounded_down(bytes / (slots * blocks)));
  };
  plan.whole = takes_whole(plan.bytes, most(false), protocol::kChainRing, blocks);
  const std::int64_t wanted = rounded_up(plan.bytes / (kChainSteps * blocks));
  const std::int64_t all = rounded_up((plan.bytes + blocks - 1) / blocks);
  plan.step_bytes = std::min({most(plan.whole), std::max(wanted, kLeastChainStep), all});
  return plan;
}

protocol::LineRelay plan_line_relay(const Group& group, const CollectiveCall& call) {
  const Descriptor& what = call.what;
  protocol::LineRelay plan;
  describe(plan, group, call);
  plan.bytes = static_cast<std::int32_t>(what.count * width_of(what));
  const int owners = assign_roles(plan, what);
  const std::int32_t lines =
      (plan.bytes + protocol::kLinePayloadBytes - 1) / protocol::kLinePayloadBytes;
  plan.part_lines = (lines + owners - 1) / owners;
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
  // Both sides must agree on what travels, not on who they are.
  Descriptor travels{
      .count = call.what.count, .kind = CollectiveKind::send, .dtype = call.what.dtype};
  plan.digest = travels.hash();
  return plan;
}

protocol::MessagePlan plan_messages(const Group& group, std::span<const CollectiveCall> calls) {
  protocol::MessagePlan plan;
  plan.group = group;
  for (const CollectiveCall& call : calls) {
    const protocol::Message one = plan_message(group, call);
    plan.messages.push_back({one.call, one.data, one.bytes, one.digest, one.peer});
  }
  // Sends first; messages of one pair stay in order, side by side.
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return std::pair(calls[i].what.kind == CollectiveKind::send ? 0 : 1, calls[i].what.root);
  };
  std::ranges::stable_sort(order, {}, key);
  std::vector<protocol::GroupedMessage> sorted;
  for (const std::size_t i : order) {
    sorted.push_back(plan.messages[i]);
    plan.sends += calls[i].what.kind == CollectiveKind::send ? 1 : 0;
  }
  plan.messages = std::move(sorted);
  return plan;
}

std::int64_t message_bytes(const Descriptor& what, int ranks) {
  const std::int64_t bytes = what.count * width_of(what);
  switch (what.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
      return bytes * ranks;
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return bytes;
  }
  __builtin_unreachable();
}

}  // namespace gantry
