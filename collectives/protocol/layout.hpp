// The layout of a rank's workspace, and the words by which ranks, kernels and hosts signal.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

// Of a group on one machine.
inline constexpr int kMaxRanks = 32;

// Why an operation ended without a result.
enum class OperationFault : std::uint32_t {
  none = 0,
  aborted = 1,   // the host stopped the kernels: a rank was lost, was late, or aborted
  mismatch = 2,  // `peer` made another call
  overlap = 3,   // another operation of the same rank was running
};

// Packs a fault with the operation's sequence number on the device, or 0. Several blocks may report
// one fault, and a graph may replay one call: the number tells these apart.
GANTRY_HD constexpr std::uint32_t fault_word(OperationFault fault, std::uint32_t sequence) {
  return sequence << 2 | static_cast<std::uint32_t>(fault);
}
constexpr OperationFault fault_of(std::uint32_t word) {
  return static_cast<OperationFault>(word & 3);
}
// Marks the fault words as locked by a thread, see Note [Fault words]. It is not a fault.
inline constexpr std::uint32_t kFaultClaimed = ~std::uint32_t{3};
static_assert(fault_of(kFaultClaimed) == OperationFault::none);
constexpr bool same_operation(std::uint32_t a, std::uint32_t b) {
  return a >> 2 != 0 && a >> 2 == b >> 2;
}

// Packs a call's number with its run above it, since graphs replay calls. `run` is any 23-bit
// number that differs from the previous run's.
GANTRY_HD constexpr std::uint64_t run_word(std::uint64_t call, std::uint64_t run) {
  return run << 41 | call;
}
constexpr std::uint64_t call_of(std::uint64_t run_word) { return run_word << 23 >> 23; }

// One rank's words, in host memory that its device reads and writes and all local ranks map.
// Each half has one writer. The shared memory stays readable after the rank's death.
struct alignas(64) DeviceWords {
  // Host to kernels: if not 0, every waiting kernel of the rank returns.
  std::uint32_t abort = 0;
  std::uint32_t reserved = 0;

  // Kernels to host: run_word() of the operation that started last, and that finished last.
  // Sends [0] and receives [1] have their own, since they run concurrently with collectives.
  alignas(64) std::uint64_t started = 0;
  std::uint64_t finished = 0;
  std::uint64_t message_started[2] = {};
  std::uint64_t message_finished[2] = {};
  // The first pending fault, see Note [Fault words].
  std::uint64_t fault_call = 0;
  std::int32_t fault_peer = -1;
  std::uint32_t fault = 0;  // fault_word()
  // For each rank the wait of a kernel of the program for it that lasts, else 0; see Note [Waits of
  // own kernels].
  std::uint32_t awaited[kMaxRanks] = {};
};
static_assert(sizeof(DeviceWords) == 256);

}  // namespace gantry

namespace gantry::protocol {

inline constexpr int kMaxRanks = gantry::kMaxRanks;
// A block fills a multiprocessor. Half of the multiprocessors remain for a second group.
inline constexpr int kMaxBlocks = 64;
// Device memory of a communicator on each rank.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
// Largest slice for one peer that LL carries, and largest array of an LL128 two-shot.
inline constexpr std::int64_t kMaxLlPayload = 64 << 10;
inline constexpr std::int64_t kMaxLl128TwoShot = 1 << 20;
// Rows of LL128 lines that each sender has: one for each shot of a two-shot.
inline constexpr int kLl128Shots = 2;
// Slots of each staging FIFO; see Note [Chunks] and Note [Two-shot].
inline constexpr int kOneShotSlots = 4;
inline constexpr int kTwoShotSlots = 4;
// Blocks that move one message between two ranks, and slots of each block in the connection.
inline constexpr int kConnectionBlocks = 16;
inline constexpr int kConnectionSlots = 4;
// Smaller messages are not open: see Note [Open messages]. They fit into no connection.
inline constexpr std::int64_t kLeastOpenMessage = std::int64_t{16} << 20;

// Note [Signals]
// A word in a rank's signal pad has one writer: the peer of its last index, or the rank itself. No
// atomic operation crosses a link. The upper half of a word is the epoch, the number of the
// operation. Every rank counts epochs in its own device memory, so a kernel that a graph replays
// takes the next epoch without the host. Epochs wrap after 2^32 operations.
//
// Every operation begins with an entry barrier. A rank writes {epoch, digest of its call} to all
// peers, and block 0 ends only after it has seen the entries of all peers. A rank that is past
// epoch e therefore knows that all ranks began e. Kernels of one rank run one after the other, so
// all ranks also ended e-1, and the memory that e-1 used is free for e+1. Hence staging, LL
// packets, LL128 lines and entry words are double-buffered by the parity of the epoch. Only large
// operations end with a barrier, see Note [Double buffering].
//
// A rank that ends an operation because of a mismatch must not overwrite the words by which the
// others detect it. So it, too, ends only after it has seen the entries of all ranks, matching or
// not.
using Semaphores = std::uint64_t[kMaxBlocks][kMaxRanks];  // [block][peer] {epoch, chunks}
// Addresses of arrays, by rank; see Note [Open arrays].
struct OpenArrays {
  std::byte* ins[kMaxRanks];
  std::byte* outs[kMaxRanks];
};
struct SignalPad {
  std::uint64_t entry_barrier[2][kMaxBlocks][kMaxRanks];  // [buffer] {epoch, digest}
  Semaphores full;     // chunks that the peer wrote to this rank's staging
  Semaphores reduced;  // chunks that the peer reduced, with the result in this rank's staging
  Semaphores empty;    // chunks of this rank's data that the peer received: the slots are free
  OpenArrays open_arrays[2][kMaxBlocks];  // [buffer]
  // Slots of a connection that the peer filled, and that it emptied, since the beginning.
  std::uint64_t filled[kConnectionBlocks][kMaxRanks];
  std::uint64_t emptied[kConnectionBlocks][kMaxRanks];

  // The words below are private to the rank.
  std::uint64_t fills[kConnectionBlocks][kMaxRanks];    // slots this rank filled at the peer
  std::uint64_t empties[kConnectionBlocks][kMaxRanks];  // slots of the peer this rank emptied
  std::uint32_t begun[kMaxBlocks];                      // last epoch that each block began
  std::uint32_t ended[kMaxBlocks];                      // last epoch that each block ended
  std::uint32_t reported[kMaxBlocks];    // last epoch that each block reported to the host
  std::uint32_t mismatched[kMaxBlocks];  // last epoch in which each block found a mismatch
  std::uint32_t opened;     // last epoch of several kernels whose entry barrier all ranks passed
  std::uint32_t aborted;    // not 0 if a block found the abort word set
  std::uint64_t clearance;  // {epoch, 1 or 2}: block 0 found the abort word unset, or set
  // The same for a single message of kLeastOpenMessage bytes or more. Each block counts those it
  // has received.
  std::uint64_t message_clearance;
  std::uint32_t large_receives[kConnectionBlocks];
};

// An LL packet: 8 bytes of payload. A half is valid when its flag is the operation's.
struct alignas(16) LlPacket {
  std::uint32_t low;
  std::uint32_t low_flag;  // 2 epoch + 1: zeroed memory holds no packet
  std::uint32_t high;
  std::uint32_t high_flag;  // digest ^ epoch
};

// An LL128 line: 15 words of payload and, last, a flag.
inline constexpr int kLl128Words = 16;
struct alignas(128) Ll128Line {
  std::uint64_t words[kLl128Words];
};
inline constexpr int kLl128PayloadBytes = 8 * (kLl128Words - 1);

// An entry with this digest is withdrawn: the rank failed and ends the operation, see
// Note [Withdrawal].
inline constexpr std::uint32_t kWithdrawn = UINT32_MAX;
// The bit of an entry's digest by which a rank opens its arrays to the others; see
// Note [Open arrays].
inline constexpr std::uint32_t kOpens = 1;
// The digest of a call whose hash is `mixed`, without kOpens. An entry that is absent holds 0.
constexpr std::uint32_t digest_of(std::uint32_t mixed) {
  const std::uint32_t digest = mixed & ~kOpens;
  return digest == 0 || digest == (kWithdrawn & ~kOpens) ? 2 : digest;
}

// Offsets in every rank's workspace; equal on all ranks.
struct Layout {
  std::uint32_t ll = 0;                // packets [buffer][sender], lines [buffer][sender][shot]
  std::uint32_t ll128_row_bytes = 0;   // lines of one sender in one shot
  std::uint32_t connections = 0;       // [sender]: messages to this rank
  std::uint32_t connection_bytes = 0;  // of one sender
  std::uint32_t staging = 0;           // [buffer]
  std::uint32_t staging_bytes = 0;     // of one buffer
};
// A packet is twice its payload.
inline constexpr std::uint32_t kLlRowBytes = 2 * kMaxLlPayload;
// The offset of the LL128 lines.
GANTRY_HD constexpr std::uint32_t ll128_begin(const Layout& layout, int ranks) {
  return layout.ll + 2 * static_cast<std::uint32_t>(ranks) * kLlRowBytes;
}

constexpr std::uint32_t round_down(std::size_t bytes, std::size_t grain) {
  return static_cast<std::uint32_t>(bytes / grain * grain);
}

constexpr Layout layout_for(int ranks) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kConnections = std::size_t{8} << 20;
  const auto n = static_cast<std::size_t>(ranks);
  Layout layout;
  layout.ll = round_down(sizeof(SignalPad) + kPage - 1, kPage);
  // A two-shot has n - 1 reducers or more, whose slices are rounded up to lines. A one-shot may use
  // the rows of both shots.
  const std::size_t lines = kMaxLl128TwoShot / (n < 3 ? 2 : n - 1) / kLl128PayloadBytes + 1;
  layout.ll128_row_bytes = round_down(lines * sizeof(Ll128Line) + kPage - 1, kPage);
  layout.connections = ll128_begin(layout, ranks) +
                       static_cast<std::uint32_t>(2 * n * kLl128Shots * layout.ll128_row_bytes);
  layout.connection_bytes = round_down(kConnections / n, kPage);
  layout.staging = layout.connections + static_cast<std::uint32_t>(n * layout.connection_bytes);
  layout.staging_bytes = round_down((kWorkspaceBytes - layout.staging) / 2, kPage);
  return layout;
}

}  // namespace gantry::protocol
