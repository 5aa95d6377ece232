// A call of an operation between ranks, and all that follows from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/reduction.hpp"
#include "collectives/selection/descriptor.hpp"
#include "collectives/selection/selector.hpp"

namespace gantry {

class Transport;

// Bytes of a message, as Choice counts them, from which on ranks of one process may use each
// other's arrays in place. Smaller operations are faster through staging, where ranks need not wait
// for all others first.
inline constexpr std::int64_t kLeastOpenBytes = std::int64_t{2} << 20;

// One operation with its arrays: contiguous, on the membership's device, checked by the
// communicator. `count` is the descriptor's.
//
//   kind            in                      out
//   all_reduce      count                   count (may be in)
//   reduce          count                   count on root (may be in), else null
//   broadcast       count on root           count on every rank (root: may be in)
//   all_gather      count                   size·count
//   reduce_scatter  size·count              count
//   gather          count                   size·count on root, else null
//   scatter         size·count on root      count
//   all_to_all      size·count, or blocks of send_counts     likewise recv_counts
//   send, recv      count (send)            count (recv)
//   barrier         null                    null
struct CollectiveCall {
  Descriptor what;
  const void* in = nullptr;
  void* out = nullptr;
  // Elements to and from each rank, of operations on blocks of unequal size; else empty. Blocks are
  // in rank order without gaps, unless a rank sends one block to all. `count` is −1. A
  // reduce_scatter only moves its blocks, and its caller reduces them: see Note [Uneven sums].
  std::span<const std::int64_t> send_counts = {};
  std::span<const std::int64_t> recv_counts = {};
  // A further transfer of the call before it, which had a list of tensors. See Note [Lists].
  bool continues = false;
  // As the caller gave them, see CollectiveOptions; 0: the group's timeout.
  std::string_view tag = {};
  std::chrono::milliseconds timeout = {};
  // A reduction whose output may be another array than its input, on any rank: it is staged.
  bool is_apart = false;
  // Captured in the body of graph_if() or graph_while().
  bool in_condition = false;
  // Devices with peer access to this rank's device can access `in` and `out`; not asked for arrays
  // of messages below kLeastOpenBytes.
  bool is_open = false;
  // The blocks that hold `in` and `out`; null for memory of others, and for messages as above.
  const memory::Block* in_block = nullptr;
  const memory::Block* out_block = nullptr;

  bool is_uneven() const { return !send_counts.empty(); }
};

// True on the root of a broadcast into another array.
bool copies_own(const CollectiveCall& call);

// A call of one tensor on each rank.
CollectiveCall call_on(CollectiveKind kind, const Tensor& tensor, int root = -1,
                       ReduceOp op = ReduceOp::sum);

// Note [Lists]
// A list of tensors takes one transfer per dtype. All of them are one call: they have its number
// and its operands, and the flight recorder has the first one. If another rank gives another list,
// it may make another number of transfers. All ranks detect the mismatch in the first one, and none
// makes a further one. On the host the first transfer throws. Kernels of further transfers are
// enqueued already, and do nothing if the one before them reported a mismatch: see
// Group::continues. So all ranks stay in step.

// A call with all that its group decides for it, found once.
struct ResolvedCall : CollectiveCall {
  // A call of `ranks` ranks, for a transport that has no choice. Throws: as reduction_for().
  ResolvedCall(const CollectiveCall& call, int ranks);

  // Bytes of one rank's message as nccl-tests count them: the larger of its input and its output.
  std::int64_t message_bytes;
  NaryReduction how{};  // of an operation that reduces
  Choice choice{};
  Transport* via = nullptr;  // null until NCCL, the choice, has started
};

// Texts of mismatches, of the calls with this number: two ranks called different collectives, or a
// receiver does not expect what its sender sends.
std::string different_calls_text(std::uint64_t number, int first, std::string_view first_call,
                                 int other, std::string_view other_call);
std::string different_messages_text(std::uint64_t number, int sender, std::string_view sent,
                                    int receiver, std::string_view received);

// A block of an operation on unequal blocks, to which two ranks give other sizes, in elements.
struct BlockDifference {
  int from;
  int to;
  std::int64_t sent;
  std::int64_t expected;

  // The error's text; `call` describes the call.
  std::string text(std::int64_t number, std::string_view call) const;
};

// Compares the counts of all ranks: what each sends to each rank, then what it expects of each.
// Skips ranks without counts. Returns the first difference.
std::optional<BlockDifference> compare_blocks(std::span<const std::vector<std::int64_t>> counts);

}  // namespace gantry
