// A message from one rank to another, through slots of the receiver's channel.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Channels]
// Each block of a sender has two slots in the receiver's workspace. It fills them in turn and waits
// only when both are full, so that a message that fits into the slots of all blocks leaves at once,
// received or not. Both sides count slots for ever, in words that have one writer. A slot begins
// with the digest of its message: the receiver finds out that the two calls differ.

inline constexpr std::int64_t kSlotHeader = 16;

template <class Block>
class ChannelShare {
 public:
  GANTRY_HD ChannelShare(Block& block, const Message& plan) : block_(block), plan_(plan) {
    const std::int64_t slots = kChannelBlocks * kChannelSlots;
    slot_bytes_ = plan.group.layout.channel_bytes / slots / 16 * 16;
    payload_ = slot_bytes_ - kSlotHeader;
    const std::int64_t pieces = (plan.bytes + payload_ - 1) / payload_;
    // An empty message is one empty slot.
    pieces_ = pieces > 0 ? pieces : 1;
  }

  GANTRY_HD bool send() {
    const Group& group = plan_.group;
    SignalPad& mine = pad_of(group, group.rank);
    SignalPad& theirs = pad_of(group, plan_.peer);
    std::uint64_t* fills = &mine.fills[block_.index()][plan_.peer];
    std::uint64_t count = block_.own(fills);
    for (std::int64_t piece = block_.index(); piece < pieces_; piece += block_.count()) {
      if (!await(&mine.emptied[block_.index()][plan_.peer],
                 count < kChannelSlots ? 0 : count - kChannelSlots + 1)) {
        return false;
      }
      std::byte* slot = slot_at(plan_.peer, group.rank, count);
      if (block_.is_leader()) *reinterpret_cast<std::uint64_t*>(slot) = plan_.digest;
      block_.copy(1, payload_, [&](int) {
        return Run{slot + kSlotHeader, plan_.data + piece * payload_,
                   clipped(plan_.bytes, piece * payload_, payload_)};
      });
      block_.sync();
      ++count;
      if (block_.is_leader()) {
        block_.set_own(fills, count);
        block_.release(&theirs.filled[block_.index()][group.rank], count);
      }
    }
    return true;
  }

  GANTRY_HD bool receive() {
    const Group& group = plan_.group;
    SignalPad& mine = pad_of(group, group.rank);
    SignalPad& theirs = pad_of(group, plan_.peer);
    std::uint64_t* empties = &mine.empties[block_.index()][plan_.peer];
    std::uint64_t count = block_.own(empties);
    for (std::int64_t piece = block_.index(); piece < pieces_; piece += block_.count()) {
      if (!await(&mine.filled[block_.index()][plan_.peer], count + 1)) return false;
      const std::byte* slot = slot_at(group.rank, plan_.peer, count);
      const bool differs =
          *reinterpret_cast<const std::uint64_t*>(slot) != std::uint64_t{plan_.digest};
      if (differs) {
        if (block_.is_leader()) {
          block_.report(group.words, Outcome::mismatch, plan_.peer, plan_.call, 0);
        }
        return false;
      }
      block_.copy(1, payload_, [&](int) {
        return Run{plan_.data + piece * payload_, slot + kSlotHeader,
                   clipped(plan_.bytes, piece * payload_, payload_)};
      });
      block_.sync();
      ++count;
      if (block_.is_leader()) {
        block_.set_own(empties, count);
        block_.release(&theirs.emptied[block_.index()][group.rank], count);
      }
    }
    return true;
  }

 private:
  // Waits until `word` is at least `count`.
  GANTRY_HD bool await(const std::uint64_t* word, std::uint64_t count) {
    bool failed = false;
    if (block_.is_leader()) {
      for (std::uint32_t spins = 1; block_.acquire(word) < count; ++spins) {
        if (spins % kPollsPerLook == 0 && block_.is_aborted(plan_.group.words)) {
          block_.report(plan_.group.words, Outcome::aborted, plan_.peer, plan_.call, 0);
          failed = true;
          break;
        }
        block_.pause(spins);
      }
    }
    return !block_.any(failed);
  }

  GANTRY_HD std::byte* slot_at(int owner, int sender, std::uint64_t count) const {
    const Layout& layout = plan_.group.layout;
    const auto slot =
        static_cast<std::int64_t>(count % kChannelSlots) * kChannelBlocks + block_.index();
    return plan_.group.workspaces[owner] + layout.channels +
           static_cast<std::int64_t>(sender) * layout.channel_bytes + slot * slot_bytes_;
  }

  Block& block_;
  const Message& plan_;
  std::int64_t slot_bytes_ = 0;
  std::int64_t payload_ = 0;
  std::int64_t pieces_ = 0;
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
