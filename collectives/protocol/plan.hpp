// What the kernels of collectives are told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

#include "collectives/control/device_words.hpp"
#include "collectives/protocol/layout.hpp"
#include "kernels/nary.hpp"

namespace gantry::protocol {

// The ranks of one machine and their memory; the same for every operation of a communicator.
struct Group {
  DeviceWords* words = nullptr;  // this rank's
  std::int32_t rank = 0;
  std::int32_t size = 1;
  bool has_graphs = false;  // see Note [Operations that overlap]
  Layout layout;
  std::byte* workspaces[kMaxRanks] = {};  // as this rank's device addresses them
};

// Sets of ranks, one bit each.
GANTRY_HD constexpr bool has(std::uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }
GANTRY_HD constexpr std::uint32_t everyone(int ranks) { return ~std::uint32_t{0} >> (32 - ranks); }

// How taken elements are combined; `copies` means that they are not.
struct Combination {
  DType dtype = DType::u8;
  kernels::NaryOp op = kernels::NaryOp::sum;
  bool copies = true;
  double divisor = 1;
  double scale = 1;
};

// An operation in which every rank offers bytes to each peer and takes what each offers to it.
//
// This rank offers in[offer_at[p], + offer_bytes[p]) to rank p, itself included. It takes
// take_bytes[p] from p: copied to out[take_at[p]), or, if it combines, all of equal size and folded
// in rank order to out[0).
struct Exchange {
  Group group;
  std::uint64_t call = 0;
  Combination how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool whole = false;                      // uses the staging of both parities
  bool uneven = false;                     // ranks make different numbers of steps
  std::int64_t step_bytes = 0;             // of each offer that one block moves in one step
  std::uint32_t digests[kMaxRanks] = {};   // of what this rank calls, as peer p shall see it
  std::uint32_t expected[kMaxRanks] = {};  // what peer p must write
  std::int64_t offer_at[kMaxRanks] = {};
  std::int64_t offer_bytes[kMaxRanks] = {};
  std::int64_t take_at[kMaxRanks] = {};
  std::int64_t take_bytes[kMaxRanks] = {};
};

// A small Exchange of equal shares, over a wire (Note [Wires]). This rank offers in[p *
// offer_stride, + bytes) to the ranks of `offers`, takes `bytes` from those of `takes`, and puts
// them to out[p * take_stride) or, if it combines, folds them to out[0). Its own share is taken
// straight from `in`.
//
// The members that every thread needs come first: a kernel's arguments arrive by the cache line,
// and each costs as much as a third of a small operation.
struct WireExchange {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int32_t bytes = 0;
  std::int32_t offer_stride = 0;
  std::int32_t take_stride = 0;
  std::uint32_t digest = 0;
  std::uint32_t offers = 0;  // ranks, one bit each
  std::uint32_t takes = 0;
  std::uint64_t call = 0;
  Combination how;
  Group group;
};

// An operation on one array of `bytes` in which ranks own parts: sources stage the array, every
// owner makes its part of the result from all sources' (a fold, or a copy of the only one's), and
// takers read all parts.
struct Relay {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  Combination how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t bytes = 0;
  std::int64_t step_bytes = 0;   // of the array that one block moves in one step
  std::int64_t part_bytes = 0;   // of these that one owner makes
  std::int32_t slot_places = 1;  // of part_bytes: 2 if a rank gets both offer and part of another
  bool whole = false;            // uses the staging of both parities
  // Ranks, one bit each.
  std::uint32_t sources = 0;
  std::uint32_t owners = 0;
  std::uint32_t takers = 0;
};

// A small Relay, in lines.
struct LineRelay {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int32_t bytes = 0;
  std::int32_t part_lines = 0;
  std::uint32_t digest = 0;
  // Ranks, one bit each.
  std::uint32_t sources = 0;
  std::uint32_t owners = 0;
  std::uint32_t takers = 0;
  std::uint64_t call = 0;
  Combination how;
  Group group;
};

// A reduce or broadcast of `bytes` in which every rank passes on what it makes of what comes.
struct Chain {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  Combination how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t bytes = 0;
  std::int64_t step_bytes = 0;  // that one block moves in one step
  std::int32_t rings = 1;       // of slots; the last one holds the result of a reduce
  bool whole = false;           // uses the staging of both parities
  std::int32_t previous = -1;   // the rank that sends to this one; -1: this is the first
  std::int32_t next = -1;       // the one this rank sends to, maybe itself; -1: nobody
  bool is_last = false;         // of those who combine: it sends the result
  std::int32_t origin = -1;     // the other rank that sends the result to this one; -1: none
  std::int32_t lag = 0;         // steps that this rank takes of it behind those it passes on
};

// One kernel of an operation on registered memory, or of several that copy engines move data
// between. It folds `bytes` from each of `sources` arrays to those of `targets`, and then lets all
// ranks come to `step`.
struct Phase {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  std::uint32_t step = 0;  // larger from phase to phase; 0: nobody waits
  bool begins = false;     // the operation, which ends at once if the ranks do not agree on it
  bool ends = false;
  Combination how;
  std::int64_t bytes = 0;
  std::int32_t sources = 0;
  std::uint32_t targets = 0;             // of outs, one bit each
  const std::byte* ins[kMaxRanks] = {};  // aligned to 16 bytes
  std::byte* outs[kMaxRanks] = {};       // may be ins
};

// One side of a message between two ranks, in slots of the receiver's channel.
struct Message {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  std::int32_t peer = 0;
  std::byte* data = nullptr;  // read by the sender, written by the receiver
  std::int64_t bytes = 0;
};

// One side of a message of a group.
struct GroupedMessage {
  std::uint64_t call = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::uint32_t digest = 0;
  std::int32_t peer = 0;
};

// Messages that one kernel moves side by side, as its argument: the sends, then the receives, each
// with those of one peer side by side and in order. See Note [Groups of messages].
template <int Most>
struct MessageList {
  Group group;
  std::int32_t sends = 0;
  std::int32_t count = 0;
  GroupedMessage messages[Most];
};
inline constexpr int kFewMessages = 8;
inline constexpr int kMostMessages = 512;
static_assert(sizeof(MessageList<kMostMessages>) < 32'764);  // a kernel's arguments

// The same before its size is chosen.
struct MessagePlan {
  Group group;
  std::int32_t sends = 0;
  std::vector<GroupedMessage> messages;
};

// Tells the host that a call begins, or that it ended, for a library whose kernels do not.
struct Telling {
  std::uint64_t* started = nullptr;  // of DeviceWords
  std::uint64_t* finished = nullptr;
  std::uint64_t* runs = nullptr;  // in device memory: counts what began, as graphs repeat calls
  std::uint64_t call = 0;
  bool begins = true;
};

}  // namespace gantry::protocol
