// Plans: the arguments of the collective kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

#include "collectives/protocol/layout.hpp"
#include "collectives/protocol/route.hpp"
#include "kernels/peers/nary.hpp"

namespace gantry::protocol {

// The ranks of one machine and their memory; the same for every operation of a communicator.
struct Group {
  DeviceWords* words = nullptr;  // of this rank
  std::int32_t rank = 0;
  std::int32_t size = 1;
  // The operation is a further transfer of the one before it, and does nothing if that one reported
  // a mismatch: see Note [Lists]. It then takes no epoch.
  bool continues = false;
  Layout layout;
  std::byte* workspaces[kMaxRanks] = {};  // addresses on this rank's device
};

// The reduction of received elements; `copies` means that they are not reduced.
struct ReduceBy {
  DType dtype = DType::u8;
  kernels::NaryOp op = kernels::NaryOp::sum;
  bool copies = true;
  double divisor = 1;
  double scale = 1;
};

// A small one-shot or two-shot with slices of one size, by LL or LL128 (Note [LL and LL128]).
//
// Send slices are in[p * send_stride, + bytes) for the ranks of `send_to`. Receive slices come from
// the ranks of `receive_from`, to out[p * receive_stride), or are reduced to out[0). This rank's
// own slice is read from `in`. In a two-shot p counts the reducers, and the last slices may be
// shorter.
//
// The members that every thread needs come first. Kernel arguments arrive by the cache line, and
// each line costs as much as a third of a small operation.
struct FlaggedPlan {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int32_t bytes = 0;  // of a slice
  std::int32_t send_stride = 0;
  std::int32_t receive_stride = 0;
  std::uint32_t digest = 0;
  RankSet send_to = 0;  // of the first shot
  RankSet receive_from = 0;
  std::uint64_t call = 0;
  ReduceBy how;
  // Of a two-shot.
  std::int32_t array_bytes = 0;
  RankSet reducers = 0;
  RankSet receivers = 0;
  Group group;
};

// An operation on open arrays: see Note [Open arrays]. This rank reduces, or fetches from the root,
// `bytes` at `from` of the inputs, to `to` of the outputs of `receivers`. The StagedPlan has the
// slices that move to one rank each.
struct OpenPlan {
  bool is_possible = false;  // the same on all ranks
  bool is_open = false;      // all ranks can access this rank's arrays
  bool stores = false;       // slices for one rank each are stored by their sender, not fetched
  RankSet receivers = 0;
  std::int32_t root = -1;  // whose input is fetched; -1: all inputs are reduced
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t bytes = 0;
  OpenArrays at_peers = {};  // this rank's arrays, at the addresses of each rank
};

// A one-shot or two-shot through staging, in chunks (Note [Chunks]), or on open arrays.
//
// One-shot: `bytes` are of a slice. The slice for rank p is in[p * send_stride). A received slice
// goes to out[p * receive_stride), or is reduced to out[0).
// Two-shot: `bytes` are of the array, and each reducer makes `slice_bytes` of every chunk.
struct StagedPlan {
  static constexpr bool kIsUneven = false;
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  ReduceBy how;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t bytes = 0;
  std::int64_t chunk_bytes = 0;  // that one block moves of `bytes` at a time
  std::int64_t slice_bytes = 0;  // of a chunk, for one rank
  std::int64_t send_stride = 0;
  std::int64_t receive_stride = 0;
  std::int32_t slot_slices = 1;  // slices in a slot: 2 if a rank gets data and result of a peer
  bool both_buffers = false;     // see Note [Double buffering]
  Route route;
  OpenPlan open;

  // The digests of this rank's call for `peer`, and of the call of `peer`.
  GANTRY_HD std::uint32_t digest_for(int /*peer*/) const { return digest; }
  GANTRY_HD std::uint32_t digest_of(int /*peer*/) const { return digest; }
  // The slices of a one-shot between this rank and `peer`.
  GANTRY_HD PeerSlices slices(int peer) const {
    return {{peer * send_stride, has(route.sends_to(group.rank), peer) ? bytes : 0},
            {peer * receive_stride, has(route.receives_from(group.rank), peer) ? bytes : 0}};
  }
};

// A one-shot that moves slices of different sizes; `bytes` is the largest of this rank's.
struct UnevenPlan : StagedPlan {
  static constexpr bool kIsUneven = true;
  std::uint32_t digests[kMaxRanks] = {};   // of this rank's call, for each peer
  std::uint32_t expected[kMaxRanks] = {};  // of each peer's call
  PeerSlices peers[kMaxRanks] = {};

  GANTRY_HD std::uint32_t digest_for(int peer) const { return digests[peer]; }
  GANTRY_HD std::uint32_t digest_of(int peer) const { return expected[peer]; }
  GANTRY_HD PeerSlices slices(int peer) const { return peers[peer]; }
};

// One kernel of a zero-copy operation, which is on registered memory. It reduces `bytes` of
// `inputs` arrays to the arrays of `targets`, and then waits for all ranks at a barrier. Copy
// engines may move data between the kernels of one operation.
struct ZeroCopy {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  std::uint32_t barrier = 0;  // grows from kernel to kernel; 0: no barrier
  bool begins = false;        // runs the entry barrier; a mismatch ends the operation
  bool ends = false;
  ReduceBy how;
  std::int64_t bytes = 0;
  std::int32_t inputs = 0;
  std::uint32_t targets = 0;             // of outs, one bit each
  const std::byte* ins[kMaxRanks] = {};  // aligned to 16 bytes
  std::byte* outs[kMaxRanks] = {};       // may be ins
};

// One side of a message between two ranks, by slots of the receiver's connection.
struct Message {
  Group group;
  std::uint64_t call = 0;
  std::uint32_t digest = 0;
  std::int32_t peer = 0;
  std::byte* data = nullptr;  // read by the sender, written by the receiver
  std::int64_t bytes = 0;
  // Where the receiver has the data open, if the sender knows: see Note [Open messages].
  std::byte* at_peer = nullptr;
};

// One side of a message of a group.
struct GroupedMessage {
  std::uint64_t call = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::uint32_t digest = 0;
  std::int32_t peer = 0;
  // The sender's data at the receiver's addresses; null: they go through slots. See
  // Note [Open messages].
  std::byte* at_peer = nullptr;
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
  Group group;
  std::int32_t sends = 0;
  std::vector<GroupedMessage> messages;
};

// Blocks of the kernel of `count` messages: half of them send and half receive, where both exist.
template <class List>
GANTRY_HD int blocks_of(const List& plan, int count) {
  return plan.sends > 0 && plan.sends < count ? 2 * kConnectionBlocks : kConnectionBlocks;
}

// A signal between two ranks through a word of a signal pad: see Window. It waits until the word is
// `awaited`, 0 to send or 1 to receive, and then writes the other value.
struct PeerSignal {
  std::uint64_t* word = nullptr;
  DeviceWords* words = nullptr;  // of this rank
  std::uint64_t call = 0;        // in the report of an abort
  std::uint32_t sequence = 0;    // of this signal on the device
  std::int32_t peer = 0;
  std::uint64_t awaited = 0;
};

// A report that the group is aborted, if it is: behind a loop that ends for this reason.
struct AbortReport {
  DeviceWords* words = nullptr;
  std::uint64_t call = 0;
};

// A report to the host that a call begins or has ended, for kernels that do not report themselves.
struct ProgressReport {
  std::uint64_t* started = nullptr;  // of DeviceWords
  std::uint64_t* finished = nullptr;
  std::uint64_t* runs = nullptr;  // in device memory: the runs begun, as graphs repeat calls
  std::uint64_t call = 0;
  bool begins = true;
};

}  // namespace gantry::protocol
