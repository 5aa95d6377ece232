// Messages that one kernel moves concurrently.
#pragma once

#include "collectives/algorithms/message.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

// Note [Groups of messages]
// If all ranks send first and then receive, they deadlock once messages are larger than a
// connection. A group therefore runs all its sends and receives in one kernel. The kernel skips a
// message that must wait and returns to it later. The order of calls in a group is therefore
// irrelevant, except for messages between the same two ranks, which their connection keeps in
// order.
//
// No legal exchange deadlocks. Block b of one direction waits only for block b of a peer, and for
// no connection while another can proceed. Take the oldest incomplete message of some pair. While
// both ends run, its slot is either empty, so that the sender proceeds, or full, so that the
// receiver does. Nothing proceeds only while every message lacks one end: the program has not
// enqueued that end, or has enqueued it after work that itself waits. All blocks of the kernel are
// on the device at once: half of the 2 * kConnectionBlocks blocks send and half receive, as many as
// a send and a recv on two streams have. Simulated blocks take turns, see sim/kernels.cpp.
//
// A block counts the slots of each connection in its cursors, because other threads may be about to
// write the counters in memory. It reports one incomplete message in each direction to the host:
// the oldest call.

template <class Block, class List>
class MessageGroupTask {
 public:
  GANTRY_HD MessageGroupTask(Block& block, const List& plan)
      : block_(block),
        plan_(plan),
        sends_(plan.sends > 0 && block.index() < kConnectionBlocks),
        index_(block.index() % kConnectionBlocks),
        end_(sends_ ? plan.sends : plan.count) {
    GANTRY_ROLLED
    for (int i = sends_ ? 0 : plan.sends; i < end_; ++i) {
      if (connections_ > 0 && plan.messages[i].peer == plan.messages[i - 1].peer) continue;
      cursors_[connections_] = {block.own(own_word(plan.messages[i].peer)), i, index_};
      ++connections_;
    }
    remaining_ = connections_;
    GANTRY_ROLLED
    for (int c = 0; c < connections_; ++c) advance_cursor(cursors_[c]);
    report_oldest();
  }

  GANTRY_HD bool is_done() const { return remaining_ == 0; }

  // Moves one chunk of every connection that is ready. Returns true if there was one.
  GANTRY_HD bool advance() {
    bool moved = false;
    GANTRY_ROLLED
    for (int c = 0; c < connections_ && remaining_ > 0; ++c) {
      if (cursors_[c].message < 0 || !move_chunk(cursors_[c])) continue;
      moved = true;
    }
    if (!moved && remaining_ > 0 && ++idle_polls_ % kPollsPerCheck == 0) stop_if_aborted();
    if (remaining_ == 0 && reports()) block_.publish(finished_word(), reported_);
    return moved;
  }

 private:
  struct Cursor {
    std::uint64_t count = 0;    // slots of the connection so far
    std::int32_t message = -1;  // −1: the connection is done
    std::int32_t chunk = 0;     // or a state of an open message
  };
  // The peer has not fetched this block's part yet; it has.
  static constexpr std::int32_t kFetching = -1;
  static constexpr std::int32_t kFetched = INT32_MAX;

  GANTRY_HD bool reports() const { return index_ == 0 && block_.is_leader(); }
  GANTRY_HD SignalPad& mine() const { return pad_of(plan_.group, plan_.group.rank); }
  GANTRY_HD std::uint64_t* own_word(int peer) const {
    return sends_ ? &mine().fills[index_][peer] : &mine().empties[index_][peer];
  }
  GANTRY_HD std::uint64_t* finished_word() const {
    return &plan_.group.words->message_finished[sends_ ? 0 : 1];
  }

  // Advances to the next message in which this block has a chunk, if the current one has no more.
  GANTRY_HD void advance_cursor(Cursor& cursor) {
    for (;;) {
      const GroupedMessage& message = plan_.messages[cursor.message];
      if (cursor.chunk < chunks_of(plan_.group.layout, message.bytes).count) return;
      const int next = cursor.message + 1;
      if (next == end_ || plan_.messages[next].peer != message.peer) {
        cursor.message = -1;
        --remaining_;
        return;
      }
      cursor.message = next;
      cursor.chunk = index_;
    }
  }

  GANTRY_HD bool is_ready(int peer, const Cursor& cursor) {
    const std::uint64_t count = cursor.count;
    if (!sends_) return block_.acquire(&mine().filled[index_][peer]) >= count + 1;
    if (cursor.chunk == kFetching) return block_.acquire(&mine().emptied[index_][peer]) >= count;
    return count < kConnectionSlots ||
           block_.acquire(&mine().emptied[index_][peer]) >= count - kConnectionSlots + 1;
  }

  GANTRY_HD bool move_chunk(Cursor& cursor) {
    const GroupedMessage& message = plan_.messages[cursor.message];
    const bool is_here = block_.each_finds(1, [&](int) { return is_ready(message.peer, cursor); });
    if (block_.any(!is_here)) return false;
    if (sends_ && cursor.chunk == kFetching) {
      cursor.chunk = kFetched;
    } else if (!pass_chunk(cursor, message)) {
      return false;
    }
    if (cursor.chunk == kFetching) return true;
    const int before = cursor.message;
    advance_cursor(cursor);
    if (cursor.message != before && plan_.messages[before].call == reported_call_) report_oldest();
    return true;
  }

  // Fills or empties a slot. False, with the fault reported, if the block's part must end.
  GANTRY_HD bool pass_chunk(Cursor& cursor, const GroupedMessage& message) {
    const std::uint64_t count = cursor.count;
    const int peer = message.peer;
    const int rank = plan_.group.rank;
    std::byte* const slot =
        slot_of(plan_.group, sends_ ? peer : rank, sends_ ? rank : peer, index_, count);
    const bool agrees = sends_ || block_.each_finds(1, [&](int) { return is_same(slot, message); });
    bool is_open = false;
    if (message.bytes >= kLeastOpenMessage) {
      if (block_.any(!agrees)) {
        remaining_ = 0;
        return false;
      }
      is_open = opens(slot, message);
      if (is_open && is_broken(message)) return false;
    }
    if (agrees) {
      const Chunks chunks = chunks_of(plan_.group.layout, message.bytes);
      const std::int64_t most = is_open ? open_part(message.bytes) : chunks.bytes;
      const std::int64_t begin = is_open ? index_ * most : cursor.chunk * most;
      const std::int64_t bytes = clipped(message.bytes, begin, most);
      std::byte* const data = message.data + begin;
      if (sends_ && block_.is_leader()) {
        *reinterpret_cast<SlotHeader*>(slot) = {message.digest,
                                                is_open ? message.at_peer + begin : nullptr};
      }
      const std::byte* from = is_open ? part_in(slot) : slot + kSlotHeader;
      const Run run =
          sends_ ? Run{slot + kSlotHeader, data, is_open ? 0 : bytes} : Run{data, from, bytes};
      block_.copy(1, most, [&](int) { return run; });
    }
    if (block_.any(!agrees)) {
      remaining_ = 0;
      return false;
    }
    SignalPad& theirs = pad_of(plan_.group, peer);
    std::uint64_t* const peer_counter =
        sends_ ? &theirs.filled[index_][rank] : &theirs.emptied[index_][rank];
    block_.for_each_rank(1, [&](int) {
      block_.set_own(own_word(peer), count + 1);
      block_.release(peer_counter, count + 1);
    });
    ++cursor.count;
    cursor.chunk = !is_open ? cursor.chunk + kConnectionBlocks : sends_ ? kFetching : kFetched;
    return true;
  }

  // True if this block's part of the message is fetched: see Note [Open messages]. The same for all
  // threads.
  GANTRY_HD bool opens(const std::byte* slot, const GroupedMessage& message) {
    if (sends_) return message.at_peer != nullptr;
    const bool has_data = block_.each_finds(1, [&](int) { return part_in(slot) == nullptr; });
    return block_.any(!has_data);
  }

  // True, with the fault reported, if a receiver may fetch nothing any more.
  GANTRY_HD bool is_broken(const GroupedMessage& message) {
    if (sends_ || !block_.any(block_.is_leader() && block_.is_aborted(plan_.group.words))) {
      return false;
    }
    if (block_.is_leader()) {
      report_fault(block_, plan_.group.words, Outcome::aborted, message.peer, message.call, 0);
    }
    remaining_ = 0;
    return true;
  }

  // False if the peer sent another message.
  GANTRY_HD bool is_same(const std::byte* slot, const GroupedMessage& message) {
    if (digest_in(slot) == message.digest) return true;
    report_fault(block_, plan_.group.words, Outcome::mismatch, message.peer, message.call, 0);
    return false;
  }

  // Ends this block's part if the host has aborted the group.
  GANTRY_HD void stop_if_aborted() {
    if (!block_.any(must_end(block_, plan_.group, idle_polls_ / kPollsPerCheck))) return;
    GANTRY_ROLLED
    for (int c = 0; c < connections_; ++c) {
      if (cursors_[c].message < 0) continue;
      const GroupedMessage& message = plan_.messages[cursors_[c].message];
      if (block_.is_leader()) {
        report_fault(block_, plan_.group.words, Outcome::aborted, message.peer, message.call, 0);
      }
      break;
    }
    GANTRY_ROLLED
    for (int c = 0; c < connections_; ++c) {
      const Cursor& cursor = cursors_[c];
      if (cursor.message < 0 || cursor.chunk != kFetching) continue;
      const int peer = plan_.messages[cursor.message].peer;
      block_.for_each_rank(
          1, [&](int) { await_reader(block_, &mine().emptied[index_][peer], cursor.count); });
    }
    remaining_ = 0;
  }

  // Reports the oldest incomplete message to the host.
  GANTRY_HD void report_oldest() {
    const Cursor* first = nullptr;
    GANTRY_ROLLED
    for (int c = 0; c < connections_; ++c) {
      const Cursor& cursor = cursors_[c];
      if (cursor.message < 0) continue;
      const std::uint64_t call = plan_.messages[cursor.message].call;
      if (first != nullptr && plan_.messages[first->message].call < call) continue;
      first = &cursor;
    }
    if (first == nullptr) return;
    reported_call_ = plan_.messages[first->message].call;
    if (!reports()) return;
    reported_ = run_word(reported_call_, first->count);
    block_.publish(&plan_.group.words->message_started[sends_ ? 0 : 1], reported_);
  }

  Block& block_;
  const List& plan_;
  bool sends_;
  int index_;
  int end_;
  int connections_ = 0;
  int remaining_ = 0;  // connections that are not done
  std::uint32_t idle_polls_ = 0;
  std::uint64_t reported_call_ = 0;
  std::uint64_t reported_ = 0;
  Cursor cursors_[kMaxRanks];
};

}  // namespace gantry::protocol
