// Messages that one kernel moves side by side.
#pragma once

#include "collectives/algorithms/message.inl"

namespace gantry::protocol {

// Note [Groups of messages]
// Ranks that all send first and receive then wait for each other as soon as the messages are larger
// than a channel. A group puts all its sends and receives into one kernel, which leaves out a
// message that cannot go on now and comes back to it. So the order of calls in a group means
// nothing, but for messages between the same two ranks, which the channel keeps in order.
//
// No legal exchange deadlocks. Block b of one direction waits only for block b of a peer, and for
// no chain while another can go on. Take the oldest message of some pair that is not done: when
// both ends run, its slot is either empty, so that the sender goes on, or full, so that the
// receiver does. So nothing moves only while every message lacks an end that the program has not
// enqueued, or has enqueued behind something that waits itself. All blocks of the kernel are on the
// device at once: half of kChannelBlocks * 2 sends, half receives, as many as a send and a recv on
// two streams take. Simulated blocks take turns, see sim/message_group.cpp.
//
// A block counts the slots of each channel in its cursors, as other threads of it may be about to
// write the counters in memory. The host is told of one unfinished message in each direction, the
// one that was called first.

template <class Block, class List>
class MessageGroupShare {
 public:
  GANTRY_HD MessageGroupShare(Block& block, const List& plan)
      : block_(block),
        plan_(plan),
        sends_(plan.sends > 0 && block.index() < kChannelBlocks),
        index_(block.index() % kChannelBlocks),
        end_(sends_ ? plan.sends : plan.count) {
    GANTRY_ROLLED
    for (int i = sends_ ? 0 : plan.sends; i < end_; ++i) {
      if (chains_ > 0 && plan.messages[i].peer == plan.messages[i - 1].peer) continue;
      cursors_[chains_] = {block.own(own_word(plan.messages[i].peer)), i, index_};
      ++chains_;
    }
    left_ = chains_;
    GANTRY_ROLLED
    for (int c = 0; c < chains_; ++c) settle(cursors_[c]);
    announce();
  }

  GANTRY_HD bool is_done() const { return left_ == 0; }

  // Moves one piece of every chain that can go on. True if there was one.
  GANTRY_HD bool advance() {
    bool moved = false;
    GANTRY_ROLLED
    for (int c = 0; c < chains_ && left_ > 0; ++c) {
      if (cursors_[c].message < 0 || !move_piece(cursors_[c])) continue;
      moved = true;
    }
    if (!moved && left_ > 0 && ++fruitless_ % kPollsPerLook == 0) look();
    if (left_ == 0 && tells()) block_.publish(finished_word(), told_);
    return moved;
  }

 private:
  struct Cursor {
    std::uint64_t count = 0;    // slots of the channel so far
    std::int32_t message = -1;  // −1: the chain is done
    std::int32_t piece = 0;
  };

  GANTRY_HD bool tells() const { return index_ == 0 && block_.is_leader(); }
  GANTRY_HD SignalPad& mine() const { return pad_of(plan_.group, plan_.group.rank); }
  GANTRY_HD std::uint64_t* own_word(int peer) const {
    return sends_ ? &mine().fills[index_][peer] : &mine().empties[index_][peer];
  }
  GANTRY_HD std::uint64_t* finished_word() const {
    return &plan_.group.words->message_finished[sends_ ? 0 : 1];
  }

  // Goes to the next message in which this block has a piece, if the last one has no more.
  GANTRY_HD void settle(Cursor& cursor) {
    for (;;) {
      const GroupedMessage& message = plan_.messages[cursor.message];
      if (cursor.piece < pieces_of(plan_.group.layout, message.bytes).count) return;
      const int next = cursor.message + 1;
      if (next == end_ || plan_.messages[next].peer != message.peer) {
        cursor.message = -1;
        --left_;
        return;
      }
      cursor.message = next;
      cursor.piece = index_;
    }
  }

  GANTRY_HD bool is_there(int peer, std::uint64_t count) {
    if (!sends_) return block_.acquire(&mine().filled[index_][peer]) >= count + 1;
    return count < kChannelSlots ||
           block_.acquire(&mine().emptied[index_][peer]) >= count - kChannelSlots + 1;
  }

  GANTRY_HD bool move_piece(Cursor& cursor) {
    const GroupedMessage& message = plan_.messages[cursor.message];
    const std::uint64_t count = cursor.count;
    const int peer = message.peer;
    const int rank = plan_.group.rank;
    const bool is_here = block_.each_finds(1, [&](int) { return is_there(peer, count); });
    if (block_.any(!is_here)) return false;
    std::byte* const slot =
        slot_of(plan_.group, sends_ ? peer : rank, sends_ ? rank : peer, index_, count);
    const bool agrees = sends_ || block_.each_finds(1, [&](int) { return is_same(slot, message); });
    if (agrees) {
      const Pieces pieces = pieces_of(plan_.group.layout, message.bytes);
      const std::int64_t begin = cursor.piece * pieces.bytes;
      const std::int64_t bytes = clipped(message.bytes, begin, pieces.bytes);
      if (sends_ && block_.is_leader()) *reinterpret_cast<std::uint64_t*>(slot) = message.digest;
      std::byte* const data = message.data + begin;
      const Run run =
          sends_ ? Run{slot + kSlotHeader, data, bytes} : Run{data, slot + kSlotHeader, bytes};
      block_.copy(1, pieces.bytes, [&](int) { return run; });
    }
    if (block_.any(!agrees)) {
      left_ = 0;
      return false;
    }
    SignalPad& theirs = pad_of(plan_.group, peer);
    std::uint64_t* const signal =
        sends_ ? &theirs.filled[index_][rank] : &theirs.emptied[index_][rank];
    block_.for_each_rank(1, [&](int) {
      block_.set_own(own_word(peer), count + 1);
      block_.release(signal, count + 1);
    });
    ++cursor.count;
    cursor.piece += kChannelBlocks;
    const int before = cursor.message;
    settle(cursor);
    if (cursor.message != before && plan_.messages[before].call == announced_) announce();
    return true;
  }

  // False if the peer sent another message.
  GANTRY_HD bool is_same(const std::byte* slot, const GroupedMessage& message) {
    if (*reinterpret_cast<const std::uint64_t*>(slot) == std::uint64_t{message.digest}) return true;
    report(block_, plan_.group.words, Outcome::mismatch, message.peer, message.call, 0);
    return false;
  }

  // Ends the share if the host says so.
  GANTRY_HD void look() {
    if (!block_.any(block_.is_aborted(plan_.group.words))) return;
    GANTRY_ROLLED
    for (int c = 0; c < chains_; ++c) {
      if (cursors_[c].message < 0) continue;
      const GroupedMessage& message = plan_.messages[cursors_[c].message];
      if (block_.is_leader()) {
        report(block_, plan_.group.words, Outcome::aborted, message.peer, message.call, 0);
      }
      break;
    }
    left_ = 0;
  }

  // Tells the host of the message that was called first, of those that are not done.
  GANTRY_HD void announce() {
    const Cursor* first = nullptr;
    GANTRY_ROLLED
    for (int c = 0; c < chains_; ++c) {
      const Cursor& cursor = cursors_[c];
      if (cursor.message < 0) continue;
      const std::uint64_t call = plan_.messages[cursor.message].call;
      if (first != nullptr && plan_.messages[first->message].call < call) continue;
      first = &cursor;
    }
    if (first == nullptr) return;
    announced_ = plan_.messages[first->message].call;
    if (!tells()) return;
    told_ = run_word(announced_, first->count);
    block_.publish(&plan_.group.words->message_started[sends_ ? 0 : 1], told_);
  }

  Block& block_;
  const List& plan_;
  bool sends_;
  int index_;
  int end_;
  int chains_ = 0;
  int left_ = 0;  // chains that are not done
  std::uint32_t fruitless_ = 0;
  std::uint64_t announced_ = 0;
  std::uint64_t told_ = 0;
  Cursor cursors_[kMaxRanks];
};

// Blocks of the kernel.
template <class List>
GANTRY_HD int blocks_of(const List& plan, int count) {
  return plan.sends > 0 && plan.sends < count ? 2 * kChannelBlocks : kChannelBlocks;
}

}  // namespace gantry::protocol
