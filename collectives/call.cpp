#include "collectives/call.hpp"

#include <fmt/format.h>

#include <utility>

#include <gantry/collectives/collective_mismatch.hpp>

#include "collectives/slices.hpp"
#include "collectives/transport.hpp"
#include "core/error_payload.hpp"
#include "job/flight_file.hpp"

namespace gantry {

bool copies_own(const CollectiveCall& call) {
  return call.what.kind == CollectiveKind::broadcast && call.what.count > 0 && call.in != nullptr &&
         call.out != nullptr && call.out != call.in;
}

CollectiveCall call_on(CollectiveKind kind, const Tensor& tensor, int root, ReduceOp op) {
  return {.what = {.count = tensor.numel(),
                   .root = root,
                   .kind = kind,
                   .op = op,
                   .dtype = tensor.dtype(),
                   .operands = operands_of(tensor)}};
}

ResolvedCall::ResolvedCall(const CollectiveCall& call, int ranks)
    : CollectiveCall(call), message_bytes(what.bytes()) {
  const Roles& roles = one_shot_roles(what.kind);
  if (!roles.sends_one || !roles.receives_one) message_bytes *= ranks;
  if (reduces(what.kind)) how = reduction_for(what.op, what.dtype, ranks, name(what.kind));
}

// Blocks of an operation in a condition in place of copies.
constexpr int kBlocksInCondition = 32;

ResolvedCall resolve_over_peers(const CollectiveCall& call, int ranks, const Selector& selector,
                                Transport& peers, bool without_nccl) {
  ResolvedCall resolved(call, ranks);
  Descriptor& what = resolved.what;
  resolved.via = &peers;
  if (call.is_uneven()) {  // the ranks do not know each other's sizes
    selector.require_served(what, resolved.message_bytes);
    selector.warn_unless_forced(what, resolved.message_bytes, resolved.choice.algorithm);
    return resolved;
  }
  what.window_offset = peers.window_offset_of(call);
  selector.require_served(what, resolved.message_bytes);
  resolved.choice = selector.choose(what, resolved.message_bytes, without_nccl);
  if (call.in_condition && resolved.choice.algorithm == Algorithm::copy) {
    resolved.choice = {Algorithm::zero_copy, kBlocksInCondition};  // bodies are of one device
  }
  if (what.blocks != 0) resolved.choice.blocks = what.blocks;
  // Other algorithms ignore registrations.
  if (!needs_registration(resolved.choice.algorithm)) what.window_offset = 0;
  if (resolved.choice.algorithm == Algorithm::nccl) resolved.via = nullptr;
  return resolved;
}

std::string different_calls_text(std::uint64_t number, int first, std::string_view first_call,
                                 int other, std::string_view other_call) {
  return fmt::format(
      "collective #{}: expected the same call on every rank, but rank {} called {} and rank {} "
      "called {}",
      flight::plain_number(number), first, first_call, other, other_call);
}

std::string different_messages_text(std::uint64_t number, int sender, std::string_view sent,
                                    int receiver, std::string_view received) {
  return fmt::format(
      "message #{}: expected a recv of what is sent, but rank {} called {} and rank {} called {}",
      flight::plain_number(number), sender, sent, receiver, received);
}

std::string BlockDifference::text(std::int64_t number, std::string_view call) const {
  return fmt::format(
      "collective #{}: expected blocks of the sizes that the receiver expects, but rank {} sends "
      "{} "
      "elements to rank {}, which expects {}, in {}",
      number, from, sent, to, expected, call);
}

std::optional<BlockDifference> compare_blocks(std::span<const std::vector<std::int64_t>> counts) {
  const std::size_t ranks = counts.size();
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      if (counts[from].empty() || counts[to].empty()) continue;
      const std::int64_t sent = counts[from][to];
      const std::int64_t expected = counts[to][ranks + from];
      if (sent == expected) continue;
      return BlockDifference{static_cast<int>(from), static_cast<int>(to), sent, expected};
    }
  }
  return std::nullopt;
}

struct CollectiveMismatch::Sides {
  std::vector<int> ranks;
  std::vector<std::string> calls;
};

CollectiveMismatch::CollectiveMismatch(const std::string& message, std::vector<int> ranks,
                                       std::vector<std::string> calls, std::source_location where)
    : InvalidArgument(message, {}, where),
      sides_(std::make_shared<const Sides>(Sides{std::move(ranks), std::move(calls)})) {}

const std::vector<int>& CollectiveMismatch::ranks() const noexcept {
  return detail::payload_or_empty(sides_).ranks;
}
const std::vector<std::string>& CollectiveMismatch::calls() const noexcept {
  return detail::payload_or_empty(sides_).calls;
}

}  // namespace gantry
