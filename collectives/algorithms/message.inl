// A message from one rank to another, through slots of the receiver's channel.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Channels]
// Each block of a sender has a ring of slots in the receiver's workspace. It fills them in turn and
// waits only when all are full, so that a message that fits into the slots of all blocks leaves at
// once, received or not. Both sides count slots for ever, in words that have one writer. A slot
// begins with the digest of its message: the receiver finds out that the two calls differ.
//
// Signals are out of the way as in a chain (Note [Chain]): every warp finds for itself that a slot
// is there, and one that does nothing else says so to the peer while the others go on. What is on
// its way and not yet acknowledged is a channel at most, which limits the messages of large groups.

inline constexpr std::int64_t kSlotHeader = 16;
// A block that moves less is not worth its signals.
inline constexpr std::int64_t kLeastPiece = 2048;

GANTRY_HD inline std::int64_t slot_bytes_of(const Layout& layout) {
  return layout.channel_bytes / (kChannelBlocks * kChannelSlots) / 16 * 16;
}

// How a message is cut; both sides do it alike.
struct Pieces {
  std::int64_t bytes;  // of each but the last
  std::int64_t count;  // at least 1: an empty message is one empty slot
};

// All blocks have as many pieces, of one length.
GANTRY_HD inline Pieces pieces_of(const Layout& layout, std::int64_t bytes) {
  constexpr auto divided_up = [](std::int64_t bytes, std::int64_t by) {
    return bytes > 0 ? (bytes + by - 1) / by : 1;
  };
  const std::int64_t payload = slot_bytes_of(layout) - kSlotHeader;
  const std::int64_t turns = divided_up(bytes, payload * kChannelBlocks);
  const std::int64_t even = divided_up(bytes, 16 * turns * kChannelBlocks) * 16;
  const std::int64_t each = even > kLeastPiece ? even : kLeastPiece;
  return {each, divided_up(bytes, each)};
}

// Where block `block` of `sender` puts its piece number `count` for `owner`.
GANTRY_HD inline std::byte* slot_of(const Group& group, int owner, int sender, int block,
                                    std::uint64_t count) {
  const auto slot = static_cast<std::int64_t>(count % kChannelSlots) * kChannelBlocks + block;
  return group.workspaces[owner] + group.layout.channels +
         static_cast<std::int64_t>(sender) * group.layout.channel_bytes +
         slot * slot_bytes_of(group.layout);
}

template <class Block>
class ChannelShare {
 public:
  GANTRY_HD ChannelShare(Block& block, const Message& plan)
      : block_(block), plan_(plan), pieces_(pieces_of(plan.group.layout, plan.bytes)) {}

  GANTRY_HD void send() {
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    SignalPad& theirs = pad_of(plan_.group, plan_.peer);
    run(
        &mine.fills[block_.index()][plan_.peer], &theirs.filled[block_.index()][plan_.group.rank],
        [&](std::uint64_t count) {
          return count < kChannelSlots ||
                 await(&mine.emptied[block_.index()][plan_.peer], count - kChannelSlots + 1);
        },
        [&](std::uint64_t count, std::byte* data, std::int64_t bytes) {
          std::byte* slot = slot_at(plan_.peer, plan_.group.rank, count);
          if (block_.is_leader()) *reinterpret_cast<std::uint64_t*>(slot) = plan_.digest;
          return Run{slot + kSlotHeader, data, bytes};
        });
  }

  GANTRY_HD void receive() {
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    SignalPad& theirs = pad_of(plan_.group, plan_.peer);
    run(
        &mine.empties[block_.index()][plan_.peer],
        &theirs.emptied[block_.index()][plan_.group.rank],
        [&](std::uint64_t count) {
          return await(&mine.filled[block_.index()][plan_.peer], count + 1) && is_mine(count);
        },
        [&](std::uint64_t count, std::byte* data, std::int64_t bytes) {
          return Run{data, slot_at(plan_.group.rank, plan_.peer, count) + kSlotHeader, bytes};
        });
  }

 private:
  // Does this block's pieces: what run_of(slot, data, bytes) says, once is_there(slot). The slots
  // done are counted in `own`, and in `told` for the peer.
  template <class IsThere, class RunOf>
  GANTRY_HD void run(std::uint64_t* own, std::uint64_t* told, const IsThere& is_there,
                     const RunOf& run_of) {
    std::uint64_t count = block_.own(own);
    GANTRY_ROLLED
    for (std::int64_t piece = block_.index(); piece < pieces_.count;
         piece += block_.count(), ++count) {
      const bool goes_on = block_.each_finds(1, [&](int) { return is_there(count); });
      if (goes_on) {
        const std::int64_t begin = piece * pieces_.bytes;
        const Run run =
            run_of(count, plan_.data + begin, clipped(plan_.bytes, begin, pieces_.bytes));
        block_.copy(1, pieces_.bytes, [&](int) { return run; });
      }
      if (block_.any(!goes_on)) return;
      block_.for_each_rank(1, [&](int) {
        block_.set_own(own, count + 1);
        block_.release(told, count + 1);
      });
    }
  }

  // Waits until `word` is at least `count`.
  GANTRY_HD bool await(const std::uint64_t* word, std::uint64_t count) {
    for (std::uint32_t spins = 1; block_.acquire(word) < count; ++spins) {
      if (spins % kPollsPerLook == 0 && block_.is_aborted(plan_.group.words)) {
        report(block_, plan_.group.words, Outcome::aborted, plan_.peer, plan_.call, 0);
        return false;
      }
      block_.pause(spins);
    }
    return true;
  }

  // False if the peer sent another message.
  GANTRY_HD bool is_mine(std::uint64_t count) {
    const std::byte* slot = slot_at(plan_.group.rank, plan_.peer, count);
    if (*reinterpret_cast<const std::uint64_t*>(slot) == std::uint64_t{plan_.digest}) return true;
    report(block_, plan_.group.words, Outcome::mismatch, plan_.peer, plan_.call, 0);
    return false;
  }

  GANTRY_HD std::byte* slot_at(int owner, int sender, std::uint64_t count) const {
    return slot_of(plan_.group, owner, sender, block_.index(), count);
  }

  Block& block_;
  const Message& plan_;
  Pieces pieces_;
};

// `slots` counts block 0's slots of this channel; every message takes one or more.
template <class Block, class Share>
GANTRY_HD void run_message(Block& block, const Message& plan, int direction,
                           const std::uint64_t& slots, Share share) {
  DeviceWords* words = plan.group.words;
  const bool tells = block.index() == 0 && block.is_leader();
  const std::uint64_t word = tells ? run_word(plan.call, block.own(&slots)) : 0;
  if (tells) block.publish(&words->message_started[direction], word);
  share();
  // Block 0 has the first piece, and pieces are dealt out in turn, so it is last but for one.
  if (tells) block.publish(&words->message_finished[direction], word);
}

template <class Block>
GANTRY_HD void send_message(Block& block, const Message& plan) {
  ChannelShare<Block> share(block, plan);
  const SignalPad& pad = pad_of(plan.group, plan.group.rank);
  run_message(block, plan, 0, pad.fills[0][plan.peer], [&] { share.send(); });
}

template <class Block>
GANTRY_HD void receive_message(Block& block, const Message& plan) {
  ChannelShare<Block> share(block, plan);
  const SignalPad& pad = pad_of(plan.group, plan.group.rank);
  run_message(block, plan, 1, pad.empties[0][plan.peer], [&] { share.receive(); });
}

}  // namespace gantry::protocol
