// Plans: the arguments of the collective kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

#include "collectives/protocol/device_words.hpp"
#include "collectives/protocol/layout.hpp"
#include "kernels/peers/nary.hpp"

namespace gantry::protocol {

// The ranks of one machine and their memory; the same for every operation of a communicator.
struct Group {
  DeviceWords* words = nullptr;  // of this rank
  std::int32_t rank = 0;
  std::int32_t size = 1;
  bool has_graphs = false;  // see Note [Operations that overlap]
  // The operation is a further transfer of the one before it, and does nothing if that one reported
  // a mismatch: see Note [Lists]. It then takes no epoch.
  bool continues = false;
  Layout layout;
  std::byte* workspaces[kMaxRanks] = {};  // addresses on this rank's device
};

// Note [Waiting kernels]
// Every plan says by kWaitsForPeers whether its kernel waits for kernels of other ranks. A launch
// of a plan without it does not compile. Simulated devices block the launching thread, or order
// tasks, by it: one thread may launch the kernels of several ranks.

// Sets of ranks, one bit each.
GANTRY_HD constexpr bool has(std::uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }
GANTRY_HD constexpr std::uint32_t all_ranks(int ranks) { return ~std::uint32_t{0} >> (32 - ranks); }

// The reduction of received elements; `copies` means that they are not reduced.
struct ReducePlan {
  DType dtype = DType::u8;
  kernels::NaryOp op = kernels::NaryOp::sum;
  bool copies = true;
  double divisor = 1;
  double scale = 1;
};

// A one-shot: every rank sends a slice to each peer and receives a slice from each.
//
// The send slice for rank p, which may be this rank, is in[send_offset[p], + send_bytes[p]). The
// receive slice of p has receive_bytes[p]. It is copied to out[receive_offset[p]); or, if elements
// are reduced, all receive slices have one size and are reduced in rank order to out[0).
struct OneShot {
  static constexpr bool kWaitsForPeers = true;
  Group group;
  std::uint64_t call = 0;
  ReducePlan how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool both_buffers = false;               // see Note [Double buffering]
  bool uneven = false;                     // ranks have different numbers of chunks
  std::int64_t chunk_bytes = 0;            // that one block moves of each slice at a time
  std::uint32_t digests[kMaxRanks] = {};   // of this rank's call, for each peer
  std::uint32_t expected[kMaxRanks] = {};  // of each peer's call
  std::int64_t send_offset[kMaxRanks] = {};
  std::int64_t send_bytes[kMaxRanks] = {};
  std::int64_t receive_offset[kMaxRanks] = {};
  std::int64_t receive_bytes[kMaxRanks] = {};
};

// A small one-shot with slices of one size, by LL or LL128 (Note [LL and LL128]).
//
// Send slices are in[p * send_stride, + bytes) for the ranks of `send_to`. Receive slices come from
// the ranks of `receive_from`, to out[p * receive_stride), or are reduced to out[0). This rank's
// own slice is read from `in`.
//
// The members that every thread needs come first. Kernel arguments arrive by the cache line, and
// each line costs as much as a third of a small operation.
struct LlOneShot {
  static constexpr bool kWaitsForPeers = true;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int32_t bytes = 0;
  std::int32_t send_stride = 0;
  std::int32_t receive_stride = 0;
  std::uint32_t digest = 0;
  std::uint32_t send_to = 0;  // ranks, one bit each
  std::uint32_t receive_from = 0;
  std::uint64_t call = 0;
  ReducePlan how;
  Group group;
};

// A two-shot on one array of `bytes`: senders stage the array, every reducer makes its slice of the
// result, and receivers copy all slices. With one sender the slice is a copy.
struct TwoShot {
  static constexpr bool kWaitsForPeers = true;
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  ReducePlan how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t bytes = 0;
  std::int64_t chunk_bytes = 0;  // of the array, that one block moves at a time
  std::int64_t slice_bytes = 0;  // of a chunk, that one reducer makes
  std::int32_t slot_slices = 1;  // slices in a slot: 2 if a rank gets data and result of a peer
  bool both_buffers = false;     // see Note [Double buffering]
  // Ranks, one bit each.
  std::uint32_t senders = 0;
  std::uint32_t reducers = 0;
  std::uint32_t receivers = 0;
};

// A small two-shot, by LL128.
struct Ll128TwoShot {
  static constexpr bool kWaitsForPeers = true;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int32_t bytes = 0;
  std::int32_t slice_lines = 0;
  std::uint32_t digest = 0;
  // Ranks, one bit each.
  std::uint32_t senders = 0;
  std::uint32_t reducers = 0;
  std::uint32_t receivers = 0;
  std::uint64_t call = 0;
  ReducePlan how;
  Group group;
};

// One kernel of a zero-copy operation, which is on registered memory. It reduces `bytes` of
// `inputs` arrays to the arrays of `targets`, and then waits for all ranks at a barrier. Copy
// engines may move data between the kernels of one operation.
struct ZeroCopy {
  static constexpr bool kWaitsForPeers = true;
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  std::uint32_t barrier = 0;  // grows from kernel to kernel; 0: no barrier
  bool begins = false;        // runs the entry barrier; a mismatch ends the operation
  bool ends = false;
  ReducePlan how;
  std::int64_t bytes = 0;
  std::int32_t inputs = 0;
  std::uint32_t targets = 0;             // of outs, one bit each
  const std::byte* ins[kMaxRanks] = {};  // aligned to 16 bytes
  std::byte* outs[kMaxRanks] = {};       // may be ins
};

// One side of a message between two ranks, by slots of the receiver's connection.
struct Message {
  static constexpr bool kWaitsForPeers = true;
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

// Messages that one kernel moves concurrently: the sends, then the receives, each grouped by peer
// and in order. A kernel argument. See Note [Groups of messages].
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

// A MessageList of any size, on the host.
struct MessagePlan {
  static constexpr bool kWaitsForPeers = true;
  Group group;
  std::int32_t sends = 0;
  std::vector<GroupedMessage> messages;
};

// A signal between two ranks through a word of a signal pad: see Window. It waits until the word is
// `awaited`, 0 to send or 1 to receive, and then writes the other value.
struct PeerSignal {
  static constexpr bool kWaitsForPeers = true;
  std::uint64_t* word = nullptr;
  DeviceWords* words = nullptr;  // of this rank
  std::uint64_t call = 0;        // in the report of an abort
  std::uint32_t sequence = 0;    // of this signal on the device
  std::int32_t peer = 0;
  std::uint64_t awaited = 0;
};

// A report to the host that a call begins or has ended, for kernels that do not report themselves.
struct ProgressReport {
  static constexpr bool kWaitsForPeers = false;
  std::uint64_t* started = nullptr;  // of DeviceWords
  std::uint64_t* finished = nullptr;
  std::uint64_t* runs = nullptr;  // in device memory: the runs begun, as graphs repeat calls
  std::uint64_t call = 0;
  bool begins = true;
};

}  // namespace gantry::protocol
