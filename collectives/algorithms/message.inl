// A message from one rank to another, through the FIFOs of their connection.
#pragma once

#include "collectives/protocol/signal.hpp"
#include "core/code_size.hpp"

namespace gantry::protocol {

// Note [Connections]
// Each block of a sender has a FIFO of slots in the receiver's workspace: together they are the
// connection. The block waits only when all slots are full. A message that fits into the slots of
// all blocks is sent at once, before the peer receives it. Both sides count slots without a reset,
// in words that have one writer. A slot begins with the digest of its message, by which the
// receiver detects a mismatch.
//
// Signals do not stall the copies. Every warp waits for its slot on its own. A signalling warp
// signals to the peer while the other warps continue. Data in flight are limited to
// the size of the connection, which limits the messages of large groups.

// Note [Open messages]
// A sender whose data the receiver can access (Note [Open arrays]) puts the address of a block's
// part into the first slot, in place of data. The receiver fetches the part, and the sender ends
// when the slot is empty again. So the receiver need not know in advance, and only the sender's
// arrays must be open. It is for large messages only: smaller ones are sent before they are
// received.
//
// A receiver looks at its abort word before it fetches, and an aborted sender gives it time to
// complete. The kernel of a single message looks once, as it begins: block 0 for all, see
// Note [Open arrays]. From then on it fetches as soon as the address is there.

struct SlotHeader {
  std::uint64_t digest;
  const std::byte* part;  // of an open message; null: data follows
};
inline constexpr std::int64_t kSlotHeader = sizeof(SlotHeader);
static_assert(kSlotHeader == 16);
// Smaller chunks cost less than their signals.
inline constexpr std::int64_t kMinMessageChunk = 2048;

GANTRY_HD inline std::int64_t slot_bytes_of(const Layout& layout) {
  return layout.connection_bytes / (kConnectionBlocks * kConnectionSlots) / 16 * 16;
}

// The chunks of a message; equal on both sides.
struct Chunks {
  std::int64_t bytes;  // of each but the last
  std::int64_t count;  // at least 1: an empty message is one empty slot
};

// Divides a message into chunks of one size; all blocks have as many of them.
GANTRY_HD inline Chunks chunks_of(const Layout& layout, std::int64_t bytes) {
  constexpr auto divided_up = [](std::int64_t bytes, std::int64_t by) {
    return bytes > 0 ? (bytes + by - 1) / by : 1;
  };
  const std::int64_t payload = slot_bytes_of(layout) - kSlotHeader;
  const std::int64_t turns = divided_up(bytes, payload * kConnectionBlocks);
  const std::int64_t even = divided_up(bytes, 16 * turns * kConnectionBlocks) * 16;
  const std::int64_t each = even > kMinMessageChunk ? even : kMinMessageChunk;
  return {each, divided_up(bytes, each)};
}

// Bytes of a block's part of an open message, a multiple of 16.
GANTRY_HD inline std::int64_t open_part(std::int64_t bytes) {
  constexpr std::int64_t kWords = 16 * std::int64_t{kConnectionBlocks};
  return (bytes + kWords - 1) / kWords * 16;
}

// Waits for a while until `word` is at least `count`: a peer has read this rank's data.
template <class Block>
GANTRY_HD void await_reader(Block& block, const std::uint64_t* word, std::uint64_t count) {
  for (std::uint32_t spins = 1; spins < Block::kSettlingPolls && block.acquire(word) < count;
       ++spins) {
    block.pause(spins);
  }
}

// The slot of chunk number `count` from block `block` of `sender` to `receiver`.
GANTRY_HD inline std::byte* slot_of(const Group& group, int receiver, int sender, int block,
                                    std::uint64_t count) {
  const auto slot = static_cast<std::int64_t>(count % kConnectionSlots) * kConnectionBlocks + block;
  return group.workspaces[receiver] + group.layout.connections +
         static_cast<std::int64_t>(sender) * group.layout.connection_bytes +
         slot * slot_bytes_of(group.layout);
}

GANTRY_HD inline std::uint64_t digest_in(const std::byte* slot) {
  return reinterpret_cast<const SlotHeader*>(slot)->digest;
}
GANTRY_HD inline const std::byte* part_in(const std::byte* slot) {
  return reinterpret_cast<const SlotHeader*>(slot)->part;
}

template <class Block>
class MessageTask {
 public:
  GANTRY_HD MessageTask(Block& block, const Message& plan)
      : block_(block), plan_(plan), chunks_(chunks_of(plan.group.layout, plan.bytes)) {}

  GANTRY_HD void send() {
    if (plan_.at_peer != nullptr) return send_address();
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    SignalPad& theirs = pad_of(plan_.group, plan_.peer);
    const std::uint64_t* emptied = &mine.emptied[block_.index()][plan_.peer];
    std::uint64_t* const own = &mine.fills[block_.index()][plan_.peer];
    std::uint64_t* const filled = &theirs.filled[block_.index()][plan_.group.rank];
    const auto is_free = [&](std::uint64_t count) {
      return count < kConnectionSlots || wait(emptied, count - kConnectionSlots + 1);
    };
    run(own, filled, is_free, [&](std::uint64_t count, std::byte* data, std::int64_t bytes) {
      std::byte* slot = slot_at(plan_.peer, plan_.group.rank, count);
      if (block_.is_leader()) *reinterpret_cast<SlotHeader*>(slot) = {plan_.digest, nullptr};
      return Run{slot + kSlotHeader, data, bytes};
    });
  }

  GANTRY_HD void receive() {
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    SignalPad& theirs = pad_of(plan_.group, plan_.peer);
    std::uint64_t* const own = &mine.empties[block_.index()][plan_.peer];
    std::uint64_t* const emptied = &theirs.emptied[block_.index()][plan_.group.rank];
    const auto is_filled = [&](std::uint64_t count) {
      return wait(&mine.filled[block_.index()][plan_.peer], count + 1) && matches(count);
    };
    if (plan_.bytes >= kLeastOpenMessage && fetch(own, emptied, is_filled)) return;
    run(own, emptied, is_filled, [&](std::uint64_t count, std::byte* data, std::int64_t bytes) {
      return Run{data, slot_at(plan_.group.rank, plan_.peer, count) + kSlotHeader, bytes};
    });
  }

 private:
  // Tells the peer where this block's part is, and waits until the peer has fetched it.
  GANTRY_HD void send_address() {
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    SignalPad& theirs = pad_of(plan_.group, plan_.peer);
    const std::uint64_t* emptied = &mine.emptied[block_.index()][plan_.peer];
    std::uint64_t* const own = &mine.fills[block_.index()][plan_.peer];
    const std::uint64_t count = block_.own(own);
    const bool is_free = block_.each_finds(1, [&](int) {
      return count < kConnectionSlots || wait(emptied, count - kConnectionSlots + 1);
    });
    if (is_free && block_.is_leader()) {
      auto* slot = reinterpret_cast<SlotHeader*>(slot_at(plan_.peer, plan_.group.rank, count));
      *slot = {plan_.digest, plan_.at_peer + block_.index() * open_part(plan_.bytes)};
    }
    if (block_.any(!is_free)) return;
    block_.for_each_rank(1, [&](int) {
      block_.set_own(own, count + 1);
      block_.release(&theirs.filled[block_.index()][plan_.group.rank], count + 1);
    });
    const bool is_fetched = block_.each_finds(1, [&](int) {
      if (wait(emptied, count + 1)) return true;
      await_reader(block_, emptied, count + 1);
      return false;
    });
    block_.any(!is_fetched);
  }

  // Fetches this block's part of the message if the sender opened it. True if the message has
  // ended: it is fetched, or the fault is reported. The same for all threads.
  template <class IsFilled>
  GANTRY_HD bool fetch(std::uint64_t* own, std::uint64_t* peer_counter, const IsFilled& is_filled) {
    const std::uint32_t number = give_clearance();
    const std::uint64_t count = block_.own(own);
    const bool is_here =
        block_.each_finds(1, [&](int) { return is_filled(count) && has_clearance(number); });
    if (block_.any(!is_here)) return true;
    const std::byte* slot = slot_at(plan_.group.rank, plan_.peer, count);
    const std::byte* part = part_in(slot);
    if (part == nullptr) return false;
    const std::int64_t most = open_part(plan_.bytes);
    const std::int64_t begin = block_.index() * most;
    const Run run{plan_.data + begin, part, clipped(plan_.bytes, begin, most)};
    block_.copy(1, most, [&](int) { return run; });
    block_.sync();
    block_.for_each_rank(1, [&](int) {
      block_.set_own(own, count + 1);
      block_.release(peer_counter, count + 1);
    });
    return true;
  }

  // Looks at the rank's abort word, for all blocks. Returns the number of this receive.
  GANTRY_HD std::uint32_t give_clearance() {
    SignalPad& mine = pad_of(plan_.group, plan_.group.rank);
    const std::uint32_t number = block_.own(&mine.large_receives[block_.index()]) + 1;
    block_.sync();
    if (!block_.is_leader()) return number;
    block_.set_own(&mine.large_receives[block_.index()], number);
    if (block_.index() == 0) {
      const std::uint32_t found = block_.is_aborted(plan_.group.words) ? 2 : 1;
      block_.set_own(&mine.message_clearance, signal_word(number, found));
    }
    return number;
  }

  // False, with the fault reported, if the abort word was set when this receive began.
  GANTRY_HD bool has_clearance(std::uint32_t number) {
    const std::uint64_t* word = &pad_of(plan_.group, plan_.group.rank).message_clearance;
    std::uint64_t found = block_.own(word);
    for (std::uint32_t spins = 1; found >> 32 != number; ++spins) {
      block_.pause(spins);
      found = block_.own(word);
    }
    if (static_cast<std::uint32_t>(found) == 1) return true;
    report_fault(block_, plan_.group.words, Outcome::aborted, plan_.peer, plan_.call, 0);
    return false;
  }

  // Copies this block's chunks, each by run_of(slot, data, bytes) once is_ready(slot). Counts the
  // slots in `own` and, for the peer, in `peer_counter`.
  template <class IsReady, class RunOf>
  GANTRY_HD void run(std::uint64_t* own, std::uint64_t* peer_counter, const IsReady& is_ready,
                     const RunOf& run_of) {
    std::uint64_t count = block_.own(own);
    GANTRY_ROLLED
    for (std::int64_t chunk = block_.index(); chunk < chunks_.count;
         chunk += block_.count(), ++count) {
      const bool goes_on = block_.each_finds(1, [&](int) { return is_ready(count); });
      if (goes_on) {
        const std::int64_t begin = chunk * chunks_.bytes;
        const Run run =
            run_of(count, plan_.data + begin, clipped(plan_.bytes, begin, chunks_.bytes));
        block_.copy(1, chunks_.bytes, [&](int) { return run; });
      }
      if (block_.any(!goes_on)) return;
      block_.for_each_rank(1, [&](int) {
        block_.set_own(own, count + 1);
        block_.release(peer_counter, count + 1);
      });
    }
  }

  // Waits until `word` is at least `count`.
  GANTRY_HD bool wait(const std::uint64_t* word, std::uint64_t count) {
    for (std::uint32_t spins = 1; block_.acquire(word) < count; ++spins) {
      if (spins % kPollsPerCheck == 0 && must_end(block_, plan_.group, spins / kPollsPerCheck)) {
        report_fault(block_, plan_.group.words, Outcome::aborted, plan_.peer, plan_.call, 0);
        return false;
      }
      block_.pause(spins);
    }
    return true;
  }

  // False if the peer sent another message.
  GANTRY_HD bool matches(std::uint64_t count) {
    const std::byte* slot = slot_at(plan_.group.rank, plan_.peer, count);
    if (digest_in(slot) == plan_.digest) return true;
    report_fault(block_, plan_.group.words, Outcome::mismatch, plan_.peer, plan_.call, 0);
    return false;
  }

  GANTRY_HD std::byte* slot_at(int receiver, int sender, std::uint64_t count) const {
    return slot_of(plan_.group, receiver, sender, block_.index(), count);
  }

  Block& block_;
  const Message& plan_;
  Chunks chunks_;
};

// Runs `body` and reports its progress to the host. `slots` counts block 0's slots of this
// connection; every message has one or more.
template <class Block, class Body>
GANTRY_HD void run_message(Block& block, const Message& plan, int direction,
                           const std::uint64_t& slots, Body body) {
  DeviceWords* words = plan.group.words;
  const bool reports = block.index() == 0 && block.is_leader();
  const std::uint64_t word = reports ? run_word(plan.call, block.own(&slots)) : 0;
  if (reports) block.publish(&words->message_started[direction], word);
  body();
  // Block 0 has the first chunk of each turn. It ends with the other blocks, or one chunk later.
  if (reports) block.publish(&words->message_finished[direction], word);
}

template <class Block>
GANTRY_HD void send_message(Block& block, const Message& plan) {
  MessageTask<Block> task(block, plan);
  const SignalPad& pad = pad_of(plan.group, plan.group.rank);
  run_message(block, plan, 0, pad.fills[0][plan.peer], [&] { task.send(); });
}

template <class Block>
GANTRY_HD void receive_message(Block& block, const Message& plan) {
  MessageTask<Block> task(block, plan);
  const SignalPad& pad = pad_of(plan.group, plan.group.rank);
  run_message(block, plan, 1, pad.empties[0][plan.peer], [&] { task.receive(); });
}

}  // namespace gantry::protocol
