// The two-shot: senders write slices to reducers, which write the results to the receivers.
#pragma once

#include "collectives/algorithms/one_shot.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

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

template <class T>
class TwoShotTask {
 public:
  GANTRY_HD TwoShotTask(const TwoShot& plan, int block, int blocks, std::uint32_t epoch)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), epoch_(epoch) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.reducers, p)) idle_ = p;
      if (plan.senders == std::uint32_t{1} << p) only_sender_ = p;
    }
  }

  GANTRY_HD std::int64_t chunks() const {
    return chunk_count(plan_.bytes, plan_.chunk_bytes, blocks_);
  }

  // Signals this rank's call to all peers, before data is staged.
  template <class Role>
  GANTRY_HD void signal_entry(Role& role) {
    signal_entries(role, group_, block_, epoch_, [&](int) { return plan_.digest; });
  }
  template <class Role>
  GANTRY_HD bool wait_all_entries(Role& role) {
    return wait_entries(role, group_, plan_.call, block_, epoch_,
                        [&](int) { return plan_.digest; });
  }

  // Sends one chunk. Returns false if the operation must end; so do reduce() and receive().
  template <class Role>
  GANTRY_HD bool send(Role& role, std::int64_t chunk) {
    if (chunk >= kTwoShotSlots && (!role.wait_role(kReduceRole, chunk - kTwoShotSlots + 1) ||
                                   !wait_reduced(role, chunk - kTwoShotSlots))) {
      return false;
    }
    if (!has(plan_.senders, group_.rank)) return true;
    const std::int64_t bytes = bytes_of(chunk);
    role.copy(group_.size, plan_.slice_bytes, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int reducer = (group_.rank + turn) % group_.size;
      const std::int64_t at = reducer_index(reducer) * plan_.slice_bytes;
      return Run{sent_slot(reducer, chunk, group_.rank), plan_.in + begin_of(chunk) + at,
                 reducer == idle_ ? 0 : clipped(bytes, at, plan_.slice_bytes)};
    });
    return true;
  }

  // Signals `chunk` to all peers. The entry comes before chunk 0, or stands for it.
  template <class Role>
  GANTRY_HD void signal_full(Role& role, std::int64_t chunk) {
    if (chunk == 0 && !plan_.both_buffers) return signal_entry(role);
    signal_chunks(role, group_, &SignalPad::full, block_, epoch_, chunk + 1);
  }

  template <class Role>
  GANTRY_HD bool reduce(Role& role, std::int64_t chunk) {
    if (!role.wait_role(kSendRole, chunk + 1) || !wait_full(role, chunk)) return false;
    if (chunk >= kTwoShotSlots && (!role.wait_role(kReceiveRole, chunk - kTwoShotSlots + 1) ||
                                   !wait_empty(role, chunk - kTwoShotSlots))) {
      return false;
    }
    if (!has(plan_.reducers, group_.rank)) return true;
    const std::int64_t at = reducer_index(group_.rank) * plan_.slice_bytes;
    const std::int64_t bytes = clipped(bytes_of(chunk), at, plan_.slice_bytes);
    if (bytes == 0) return true;
    if constexpr (kReduces<T>) {
      const std::int64_t offset = reduced_slot(0, chunk, group_.rank) - group_.workspaces[0];
      role.template reduce<T>(
          plan_.how, {group_.workspaces, offset, plan_.receivers}, bytes,
          StridedArrays<3>{sent_slot(group_.rank, chunk, 0),
                           region_bytes(group_, plan_.both_buffers), group_.size});
    } else {
      role.copy(group_.size, bytes, [&](int turn) {
        const int p = (group_.rank + turn) % group_.size;
        return Run{reduced_slot(p, chunk, group_.rank), sent_slot(group_.rank, chunk, only_sender_),
                   has(plan_.receivers, p) ? bytes : 0};
      });
    }
    return true;
  }

  template <class Role>
  GANTRY_HD void signal_reduced(Role& role, std::int64_t chunk) {
    signal_chunks(role, group_, &SignalPad::reduced, block_, epoch_, chunk + 1);
  }

  template <class Role>
  GANTRY_HD bool receive(Role& role, std::int64_t chunk) {
    if (!role.wait_role(kReduceRole, chunk + 1) || !wait_reduced(role, chunk)) return false;
    if (!has(plan_.receivers, group_.rank)) return true;
    const std::int64_t bytes = bytes_of(chunk);
    role.copy(group_.size, plan_.slice_bytes, [&](int reducer) {
      const std::int64_t at = reducer_index(reducer) * plan_.slice_bytes;
      return Run{plan_.out + begin_of(chunk) + at, reduced_slot(group_.rank, chunk, reducer),
                 reducer == idle_ ? 0 : clipped(bytes, at, plan_.slice_bytes)};
    });
    return true;
  }

  // Signals to all peers that their result slot of `chunk` is free, if a rank waits for that.
  template <class Role>
  GANTRY_HD void signal_empty(Role& role, std::int64_t chunk) {
    const std::int64_t all = chunks();
    if (chunk + kTwoShotSlots < all || (plan_.both_buffers && chunk + 1 == all)) {
      signal_chunks(role, group_, &SignalPad::empty, block_, epoch_, chunk + 1);
    }
  }
  template <class Role>
  GANTRY_HD bool wait_empty(Role& role, std::int64_t chunk) {
    return wait_chunks(role, group_, pad_of(group_, group_.rank).empty[block_], plan_.call, epoch_,
                       static_cast<std::uint32_t>(chunk + 1));
  }

 private:
  static constexpr int kSendRole = 0;
  static constexpr int kReduceRole = 1;
  static constexpr int kReceiveRole = 2;

  // Slices are numbered over the reducers.
  GANTRY_HD int reducer_index(int rank) const {
    return idle_ >= 0 && rank > idle_ ? rank - 1 : rank;
  }

  template <class Role>
  GANTRY_HD bool wait_full(Role& role, std::int64_t chunk) {
    if (chunk == 0 && !plan_.both_buffers) return wait_all_entries(role);
    return wait_chunks(role, group_, pad_of(group_, group_.rank).full[block_], plan_.call, epoch_,
                       static_cast<std::uint32_t>(chunk + 1));
  }
  template <class Role>
  GANTRY_HD bool wait_reduced(Role& role, std::int64_t chunk) {
    return wait_chunks(role, group_, pad_of(group_, group_.rank).reduced[block_], plan_.call,
                       epoch_, static_cast<std::uint32_t>(chunk + 1));
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t chunk) const {
    return (chunk * blocks_ + block_) * plan_.chunk_bytes;
  }
  GANTRY_HD std::int64_t bytes_of(std::int64_t chunk) const {
    return clipped(plan_.bytes, begin_of(chunk), plan_.chunk_bytes);
  }
  GANTRY_HD std::byte* slot_at(int rank, int writer, std::int64_t chunk) const {
    return slot_of(group_, rank, writer, epoch_, plan_.both_buffers,
                   chunk % kTwoShotSlots * blocks_ + block_, plan_.slice_bytes * plan_.slot_slices);
  }
  // The slot in `rank`'s staging of the slice from `sender`.
  GANTRY_HD std::byte* sent_slot(int rank, std::int64_t chunk, int sender) const {
    return slot_at(rank, sender, chunk);
  }
  // The slot in `rank`'s staging of the result from `reducer`.
  GANTRY_HD std::byte* reduced_slot(int rank, std::int64_t chunk, int reducer) const {
    return slot_at(rank, reducer, chunk) + (plan_.slot_slices - 1) * plan_.slice_bytes;
  }

  const TwoShot& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t epoch_;
  int idle_ = -1;         // the rank that is no reducer, if there is one
  int only_sender_ = -1;  // if there is only one
};

template <class T, class Block>
GANTRY_HD void two_shot(Block& block, const TwoShot& plan) {
  std::uint32_t epoch = 0;
  if (!begin(block, plan.group, plan.call, epoch)) return;
  TwoShotTask<T> task(plan, block.index(), block.count(), epoch);
  bool complete = true;
  if (plan.both_buffers) {
    task.signal_entry(block);
    complete = task.wait_all_entries(block);
  }
  complete = complete &&
             block.template pipeline<5, 6, 5>(
                 task.chunks(),
                 Stage{[&](auto& role, std::int64_t chunk) { return task.send(role, chunk); },
                       [&](auto& role, std::int64_t chunk) { task.signal_full(role, chunk); }},
                 Stage{[&](auto& role, std::int64_t chunk) { return task.reduce(role, chunk); },
                       [&](auto& role, std::int64_t chunk) { task.signal_reduced(role, chunk); }},
                 Stage{[&](auto& role, std::int64_t chunk) { return task.receive(role, chunk); },
                       [&](auto& role, std::int64_t chunk) { task.signal_empty(role, chunk); }});
  if (complete && plan.both_buffers) task.wait_empty(block, task.chunks() - 1);
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
