// One-shots and two-shots through staging, in chunks.
#pragma once

#include "collectives/algorithms/open.inl"
#include "collectives/protocol/signal.hpp"
#include "core/code_size.hpp"

namespace gantry::protocol {

// Note [Chunks]
// A block moves its slices in chunks, through a FIFO of slots in staging: little staging is enough,
// and no link idles. One warp role sends chunks to the peers and signals "full". Another role
// receives the chunks of the peers (Note [Warp roles]) and signals "empty": the slot is free for a
// later chunk.
//
// Data cross links as writes, which do not stall the writer, and are read from local memory.
//
// Note [Two-shot]
// A reduce-scatter to the reducers and an all-gather from them. With n ranks every link carries the
// array about once in each direction, instead of n-1 times as in a one-shot. Senders write one
// slice to each reducer. The reducer writes its result to all receivers. With one sender or one
// receiver the reducers are the other ranks, so that the root's link carries no slice twice.
//
// Three warp roles send, reduce and receive (Note [Warp roles]). The slot of a sender's slice is
// free again when its reducer has signalled "reduced" for the chunk. The slot of a result is free
// when its receiver has signalled "empty". A slot holds two slices where a rank gets both from one
// peer.
//
// Note [Double buffering]
// Staging has two buffers, which operations use in turn by the parity of their epoch. Such an
// operation needs no exit barrier. An operation of many chunks uses both buffers, for chunks twice
// as large, because each signal that is ordered after data costs microseconds. It needs the
// previous operation's buffer to be free. All ranks therefore enter before data is sent, and no
// rank leaves before all ranks have received everything, because the next operation may use either
// buffer. An operation that may be on open arrays does so, too.

// More chunks than any operation has.
inline constexpr std::int64_t kAllChunks = INT32_MAX;

// One block's part of an operation of `Plan`, StagedPlan or UnevenPlan. All functions that return
// bool return false if the operation must end.
template <class T, int Shots, class Plan>
class StagedTask {
 public:
  GANTRY_HD StagedTask(const Plan& plan, int block, int blocks, std::uint32_t epoch)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), epoch_(epoch) {
    if constexpr (Shots == 2) {
      GANTRY_ROLLED
      for (int p = 0; p < group_.size; ++p) {
        if (!has(plan.route.reducers, p)) idle_ = p;
      }
    }
  }

  GANTRY_HD std::int64_t chunks() const {
    const std::int64_t per_chunk = plan_.chunk_bytes * blocks_;
    const std::int64_t chunks = per_chunk == 0 ? 0 : (plan_.bytes + per_chunk - 1) / per_chunk;
    return chunks > 1 ? chunks : 1;
  }

  // Signals this rank's call to all peers, before data is staged.
  template <class Role>
  GANTRY_HD void signal_entry(Role& role) {
    signal_entries(role, group_, block_, epoch_, [&](int p) { return plan_.digest_for(p); });
  }
  template <class Role>
  GANTRY_HD bool wait_all_entries(Role& role) {
    return wait_entries(role, group_, plan_.call, block_, epoch_,
                        [&](int p) { return plan_.digest_of(p); });
  }

  template <class Role>
  GANTRY_HD bool send(Role& role, std::int64_t chunk) {
    if (chunk >= kSlots && (!role.wait_role(kReduceRole, chunk - kSlots + 1) ||
                            !wait_chunk(role, kFreesSent, chunk - kSlots))) {
      return false;
    }
    if constexpr (Shots == 2) {
      if (!has(plan_.route.senders, group_.rank)) return true;
    }
    // Ranks begin with different peers, so that no link serves all at once.
    role.copy(group_.size, plan_.slice_bytes, [&](int turn) {
      const int p = (group_.rank + turn) % group_.size;
      // A rank's slice for itself is copied from `in`, unless it is reduced.
      const bool skip = Shots == 1 && p == group_.rank && !kReduces<T>;
      const ByteSlice slice = slice_for(p, chunk);
      return Run{sent_slot(p, chunk, group_.rank), plan_.in + slice.at, skip ? 0 : slice.bytes};
    });
    return true;
  }
  // Signals `chunk` to all peers. The entry comes before chunk 0, or stands for it.
  template <class Role>
  GANTRY_HD void signal_full(Role& role, std::int64_t chunk) {
    if (chunk == 0 && !plan_.both_buffers) return signal_entry(role);
    signal_chunks(role, group_, &SignalPad::full, block_, epoch_, chunk + 1);
  }

  // Reduces or copies what this rank received of one chunk: to the output in a one-shot, and to the
  // slots of the receivers in a two-shot.
  template <class Role>
  GANTRY_HD bool reduce(Role& role, std::int64_t chunk) {
    // This rank's own slice must be staged, too.
    if constexpr (Shots == 2 || kReduces<T>) {
      if (!role.wait_role(kSendRole, chunk + 1)) return false;
    }
    if (!wait_full(role, chunk)) return false;
    if constexpr (Shots == 2) {
      if (chunk >= kSlots && (!role.wait_role(kReceiveRole, chunk - kSlots + 1) ||
                              !wait_empty(role, chunk - kSlots))) {
        return false;
      }
      if (has(plan_.route.reducers, group_.rank)) reduce_to_slots(role, chunk);
    } else if constexpr (kReduces<T>) {
      if (has(plan_.route.reducers, group_.rank)) reduce_to_output(role, chunk);
    } else {
      copy_to_output(role, chunk);
    }
    return true;
  }
  template <class Role>
  GANTRY_HD void signal_reduced(Role& role, std::int64_t chunk) {
    signal_chunks(role, group_, &SignalPad::reduced, block_, epoch_, chunk + 1);
  }

  // Copies the results of a two-shot to the output.
  template <class Role>
  GANTRY_HD bool receive(Role& role, std::int64_t chunk) {
    if (!role.wait_role(kReduceRole, chunk + 1) || !wait_chunk(role, &SignalPad::reduced, chunk)) {
      return false;
    }
    if (!has(plan_.route.receivers, group_.rank)) return true;
    role.copy(group_.size, plan_.slice_bytes, [&](int p) {
      const ByteSlice slice = slice_of(p, chunk);
      return Run{plan_.out + slice.at, reduced_slot(group_.rank, chunk, p), slice.bytes};
    });
    return true;
  }
  // Signals to all peers that their slot of `chunk` is free, if a rank waits for that.
  template <class Role>
  GANTRY_HD void signal_empty(Role& role, std::int64_t chunk) {
    const std::int64_t all = chunks();
    if (Plan::kIsUneven || chunk + kSlots < all || (plan_.both_buffers && chunk + 1 == all)) {
      signal_chunks(role, group_, &SignalPad::empty, block_, epoch_, chunk + 1);
    }
  }
  template <class Role>
  GANTRY_HD bool wait_empty(Role& role, std::int64_t chunk) {
    return wait_chunk(role, &SignalPad::empty, chunk);
  }

  // Signals the end of this rank's chunks, for peers that have more.
  template <class Role>
  GANTRY_HD void signal_all_chunks(Role& role) {
    signal_chunks(role, group_, &SignalPad::full, block_, epoch_, kAllChunks);
    signal_chunks(role, group_, &SignalPad::empty, block_, epoch_, kAllChunks);
  }

 private:
  static constexpr int kSlots = Shots == 1 ? kOneShotSlots : kTwoShotSlots;
  static constexpr int kSendRole = 0;
  static constexpr int kReduceRole = 1;
  static constexpr int kReceiveRole = 2;
  // The signal that the slot of a sent slice is free.
  static constexpr Semaphores SignalPad::*kFreesSent =
      Shots == 1 ? &SignalPad::empty : &SignalPad::reduced;

  template <class Role>
  GANTRY_HD bool wait_chunk(Role& role, Semaphores SignalPad::*words, std::int64_t chunk) {
    return wait_chunks(role, group_, (pad_of(group_, group_.rank).*words)[block_], plan_.call,
                       epoch_, static_cast<std::uint32_t>(chunk + 1));
  }
  template <class Role>
  GANTRY_HD bool wait_full(Role& role, std::int64_t chunk) {
    if (chunk == 0 && !plan_.both_buffers) return wait_all_entries(role);
    return wait_chunk(role, &SignalPad::full, chunk);
  }

  template <class Role>
  GANTRY_HD void reduce_to_output(Role& role, std::int64_t chunk) {
    const std::int64_t begin = begin_of(chunk);
    const std::int64_t bytes = clipped(plan_.bytes, begin, plan_.chunk_bytes);
    if (bytes == 0) return;
    role.template reduce<T>(
        plan_.how, {&plan_.out, begin, 1}, bytes,
        StridedArrays<1>{sent_slot(group_.rank, chunk, 0), writer_stride(), group_.size});
  }
  template <class Role>
  GANTRY_HD void copy_to_output(Role& role, std::int64_t chunk) {
    const std::int64_t begin = begin_of(chunk);
    role.copy(group_.size, plan_.slice_bytes, [&](int p) {
      const PeerSlices slices = plan_.slices(p);
      std::byte* to = plan_.out + slices.receive.at + begin;
      const std::byte* from =
          p == group_.rank ? plan_.in + slices.send.at + begin : sent_slot(group_.rank, chunk, p);
      const std::int64_t bytes = clipped(slices.receive.bytes, begin, plan_.chunk_bytes);
      return Run{to, from, to == from ? 0 : bytes};
    });
  }
  template <class Role>
  GANTRY_HD void reduce_to_slots(Role& role, std::int64_t chunk) {
    const std::int64_t bytes = slice_of(group_.rank, chunk).bytes;
    if (bytes == 0) return;
    if constexpr (kReduces<T>) {
      const std::int64_t offset = reduced_slot(0, chunk, group_.rank) - group_.workspaces[0];
      role.template reduce<T>(
          plan_.how, {group_.workspaces, offset, plan_.route.receivers}, bytes,
          StridedArrays<3>{sent_slot(group_.rank, chunk, 0), writer_stride(), group_.size});
    } else {
      const int sender = idle_;  // the root of a broadcast
      role.copy(group_.size, bytes, [&](int turn) {
        const int p = (group_.rank + turn) % group_.size;
        return Run{reduced_slot(p, chunk, group_.rank), sent_slot(group_.rank, chunk, sender),
                   has(plan_.route.receivers, p) ? bytes : 0};
      });
    }
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t chunk) const {
    return (chunk * blocks_ + block_) * plan_.chunk_bytes;
  }
  // The slice in `chunk` of reducer `p` of a two-shot, as bytes of the array. The reducers' slices
  // are adjacent.
  GANTRY_HD ByteSlice slice_of(int p, std::int64_t chunk) const {
    const std::int64_t begin = begin_of(chunk);
    const std::int64_t at = (idle_ >= 0 && p > idle_ ? p - 1 : p) * plan_.slice_bytes;
    const std::int64_t bytes = clipped(plan_.bytes, begin, plan_.chunk_bytes);
    return {begin + at, p == idle_ ? 0 : clipped(bytes, at, plan_.slice_bytes)};
  }
  // The part of `chunk` that this rank sends to `p`, as bytes of its input.
  GANTRY_HD ByteSlice slice_for(int p, std::int64_t chunk) const {
    if constexpr (Shots == 2) return slice_of(p, chunk);
    const std::int64_t begin = begin_of(chunk);
    const ByteSlice slice = plan_.slices(p).send;
    return {slice.at + begin, clipped(slice.bytes, begin, plan_.chunk_bytes)};
  }

  // Bytes between the slots of two writers: of staging that each rank has for itself, whatever it
  // calls.
  GANTRY_HD std::int64_t writer_stride() const {
    return std::int64_t{group_.layout.staging_bytes} * (plan_.both_buffers ? 2 : 1) / group_.size /
           16 * 16;
  }
  // The slot of `chunk` in the staging of `rank` that `writer` writes.
  GANTRY_HD std::byte* sent_slot(int rank, std::int64_t chunk, int writer) const {
    const Layout& layout = group_.layout;
    const std::int64_t buffer = plan_.both_buffers ? 0 : static_cast<std::int64_t>(epoch_ & 1);
    const std::int64_t slot = chunk % kSlots * blocks_ + block_;
    return group_.workspaces[rank] + layout.staging + buffer * layout.staging_bytes +
           writer * writer_stride() + slot * plan_.slice_bytes * plan_.slot_slices;
  }
  // As above, of the result of a two-shot.
  GANTRY_HD std::byte* reduced_slot(int rank, std::int64_t chunk, int reducer) const {
    return sent_slot(rank, chunk, reducer) + (plan_.slot_slices - 1) * plan_.slice_bytes;
  }

  const Plan& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t epoch_;
  int idle_ = -1;  // the rank that is no reducer of a two-shot, if there is one
};

// Note [Withdrawal]
// In an uneven operation every pair of ranks may agree or differ on the sizes of its slices. A rank
// that differs from a peer ends the operation. Peers that agree with it would wait for its chunks,
// so it withdraws its entry. The withdrawn entry stays visible until these peers begin the next
// operation. They withdraw their entries, too. A chunk of the next operation implies the end of
// this one (has_reached()). A rank that failed therefore remains in the operation until each
// agreeing peer has reached the end or has withdrawn its entry.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void withdraw(Block block, const UnevenPlan& plan, std::uint32_t epoch) {
  const Group& group = plan.group;
  const int index = block.index();
  block.for_each_rank(group.size, [&](int p) {
    // After an abort peers must not see a mismatch. No operation follows.
    if (p == group.rank || block.is_aborted(group.words)) return;
    block.release(&pad_of(group, p).entry_barrier[epoch & 1][index][group.rank],
                  signal_word(epoch, kWithdrawn));
  });
  block.for_each_rank(group.size, [&](int p) {
    if (p == group.rank) return;
    const SignalPad& pad = pad_of(group, group.rank);
    const std::uint64_t* entry = &pad.entry_barrier[epoch & 1][index][p];
    const std::uint64_t agreed = signal_word(epoch, plan.digest_of(p));
    for (std::uint32_t spins = 1;
         block.acquire(entry) == agreed &&
         !has_reached(block.acquire(&pad.empty[index][p]), epoch, kAllChunks);
         ++spins) {
      if (spins % kPollsPerCheck == 0 &&
          check_abort(block, group, plan.call, epoch, spins / kPollsPerCheck) != Outcome::done) {
        return;
      }
      block.pause(spins);
    }
  });
}

template <class T, int Shots, class Plan, class Block>
GANTRY_HD void staged(Block& block, const Plan& plan) {
  static_assert(!Plan::kIsUneven || (Shots == 1 && !kReduces<T>));
  Begun begun;
  if (!begin(block, plan.group, plan.call, begun)) return;
  const std::uint32_t epoch = begun.epoch;
  if constexpr (!Plan::kIsUneven) {
    if (plan.open.is_possible) {
      const OpenOutcome outcome = run_on_open_arrays<T, Shots>(block, plan, epoch);
      if (outcome != OpenOutcome::closed) return end(block, plan.group, plan.call, epoch);
    }
  }
  StagedTask<T, Shots, Plan> task(plan, block.index(), block.count(), epoch);
  bool complete = true;
  if (plan.both_buffers && !plan.open.is_possible) {
    task.signal_entry(block);
    complete = task.wait_all_entries(block);
  }
  const auto send = Stage{[&](auto& role, std::int64_t chunk) { return task.send(role, chunk); },
                          [&](auto& role, std::int64_t chunk) { task.signal_full(role, chunk); }};
  const auto reduce = [&](auto& role, std::int64_t chunk) { return task.reduce(role, chunk); };
  const auto signal_empty = [&](auto& role, std::int64_t chunk) { task.signal_empty(role, chunk); };
  if constexpr (Shots == 1) {
    complete =
        complete && block.template pipeline<8, 8>(task.chunks(), send, Stage{reduce, signal_empty});
  } else {
    complete = complete &&
               block.template pipeline<5, 6, 5>(
                   task.chunks(), send,
                   Stage{reduce,
                         [&](auto& role, std::int64_t chunk) { task.signal_reduced(role, chunk); }},
                   Stage{[&](auto& role, std::int64_t chunk) { return task.receive(role, chunk); },
                         signal_empty});
  }
  if constexpr (Plan::kIsUneven) {
    if (complete) {
      task.signal_all_chunks(block);
    } else {
      withdraw(block, plan, epoch);
    }
  }
  if (complete && plan.both_buffers) task.wait_empty(block, task.chunks() - 1);
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
