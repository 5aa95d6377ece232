// How a rank's workspace is divided, and the words by which ranks signal each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry::protocol {

inline constexpr int kMaxRanks = 32;
// A block fills a multiprocessor; half of them leaves room for a second group.
inline constexpr int kMaxBlocks = 64;
// Device memory that a communicator takes on each rank.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
// Largest part for one peer that travels in packets, and largest array that is relayed in lines.
inline constexpr std::int64_t kMaxPacketPayload = 64 << 10;
inline constexpr std::int64_t kMaxLineRelay = 1 << 20;
inline constexpr int kLinePhases = 2;
// Steps of one operation whose staging is in use at once; see Note [Steps], Note [Relay] and
// Note [Chain].
inline constexpr int kExchangeRing = 4;
inline constexpr int kRelayRing = 4;
inline constexpr int kChainRing = 4;
// Blocks that move one message between two ranks, and slots that each has in the channel.
inline constexpr int kChannelBlocks = 16;
inline constexpr int kChannelSlots = 4;

// Note [Signals]
// A word in a rank's pad has one writer, the peer of its last index (or the rank itself), so that
// no atomic operation crosses a link. Its upper half is the number of the operation, `sequence`,
// which every rank counts in its own device memory: a kernel that runs again in a graph takes the
// next number without the host. Numbers go round after 2^32 operations.
//
// Every operation begins with an entry: a rank writes {sequence, digest of its call} to all peers,
// and block 0 ends after it has seen all peers' entries. So a rank that is past operation e knows
// that all ranks began e and, because kernels of one rank run one after the other, ended e-1: what
// e-1 used of their memory is free for e+1. Staging, packets and lines come twice, for even and odd
// operations, and only large operations end with a barrier, see Note [Whole staging]. So do
// entries: a rank that leaves an operation because of a mismatch does not take away what tells the
// others. It, too, leaves only after it has seen the entries of all, matching or not.
using StepWords = std::uint64_t[kMaxBlocks][kMaxRanks];
struct SignalPad {
  std::uint64_t entry[2][kMaxBlocks][kMaxRanks];  // [parity] {sequence, digest}
  // {sequence, steps}: pushed to this rank, made of what it pushed, taken of what it pushed.
  StepWords staged;
  StepWords ready;
  StepWords taken;
  // Slots of a channel ever filled by a peer, and ever emptied by it.
  std::uint64_t filled[kChannelBlocks][kMaxRanks];
  std::uint64_t emptied[kChannelBlocks][kMaxRanks];

  // The rest is the rank's own: nobody else reads or writes it.
  std::uint64_t fills[kChannelBlocks][kMaxRanks];    // of its own making, in a peer's channel
  std::uint64_t empties[kChannelBlocks][kMaxRanks];  // of a peer's making, in its channel
  std::uint32_t begun[kMaxBlocks];                   // number of the last operation that each began
  std::uint32_t ended[kMaxBlocks];                   // … and ended
  std::uint32_t told[kMaxBlocks];                    // … of which each told the host
  std::uint32_t opened;  // number of the last operation of several kernels that all ranks began
};

// 8 bytes of payload, each half with a flag: a half is there when its flag is the operation's.
struct alignas(16) Packet {
  std::uint32_t low;
  std::uint32_t low_flag;  // 2 sequence + 1: zeroed memory holds no packet
  std::uint32_t high;
  std::uint32_t high_flag;  // digest ^ sequence
};

// 15 words of payload and, last, a flag.
inline constexpr int kLineWords = 16;
struct alignas(128) Line {
  std::uint64_t words[kLineWords];
};
inline constexpr int kLinePayloadBytes = 8 * (kLineWords - 1);

// In place of a digest, a rank takes its entry back: the operation failed, and it does no more of
// it, see Note [Withdrawal].
inline constexpr std::uint32_t kWithdrawn = UINT32_MAX;
// What `mixed` is as the digest of a call; 0 is what an entry holds that is not there yet.
constexpr std::uint32_t digest_of(std::uint32_t mixed) {
  return mixed == 0 || mixed == kWithdrawn ? 1 : mixed;
}

// Where things lie in each rank's workspace; equal on all ranks.
struct Layout {
  std::uint32_t packets = 0;         // [parity][sender], and then lines [parity][sender][phase]
  std::uint32_t line_row_bytes = 0;  // of one sender's in one phase
  std::uint32_t channels = 0;        // [sender]: what is sent to this rank
  std::uint32_t channel_bytes = 0;   // of one sender's
  std::uint32_t staging = 0;         // [parity]
  std::uint32_t staging_bytes = 0;   // of one parity
};
// Packets are twice their payload.
inline constexpr std::uint32_t kPacketRowBytes = 2 * kMaxPacketPayload;
// Where lines begin.
GANTRY_HD constexpr std::uint32_t lines_at(const Layout& layout, int ranks) {
  return layout.packets + 2 * static_cast<std::uint32_t>(ranks) * kPacketRowBytes;
}

constexpr std::uint32_t round_down(std::size_t bytes, std::size_t grain) {
  return static_cast<std::uint32_t>(bytes / grain * grain);
}

constexpr Layout layout_for(int ranks) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kChannels = std::size_t{8} << 20;
  const auto n = static_cast<std::size_t>(ranks);
  Layout layout;
  layout.packets = round_down(sizeof(SignalPad) + kPage - 1, kPage);
  // A relay has n - 1 owners or more, whose parts are rounded up to lines. What goes straight to a
  // peer may take the rows of both phases.
  const std::size_t lines = kMaxLineRelay / (n < 3 ? 2 : n - 1) / kLinePayloadBytes + 1;
  layout.line_row_bytes = round_down(lines * sizeof(Line) + kPage - 1, kPage);
  layout.channels = lines_at(layout, ranks) +
                    static_cast<std::uint32_t>(2 * n * kLinePhases * layout.line_row_bytes);
  layout.channel_bytes = round_down(kChannels / n, kPage);
  layout.staging = layout.channels + static_cast<std::uint32_t>(n * layout.channel_bytes);
  layout.staging_bytes = round_down((kWorkspaceBytes - layout.staging) / 2, kPage);
  return layout;
}

}  // namespace gantry::protocol
