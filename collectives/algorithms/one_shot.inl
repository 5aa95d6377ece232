// The one-shot: every rank writes its send slices to the staging of their receivers.
#pragma once

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
// Note [Double buffering]
// Staging has two buffers, which operations use in turn by the parity of their epoch. Such an
// operation needs no exit barrier. An operation of many chunks uses both buffers, for chunks twice
// as large, because each signal that is ordered after data costs microseconds. It needs the
// previous operation's buffer to be free. All ranks therefore enter before data is sent, and no
// rank leaves before all ranks have received everything, because the next operation may use either
// buffer.

// Bytes of a rank's staging that each rank has: no other rank writes there, whatever it calls.
GANTRY_HD inline std::int64_t region_bytes(const Group& group, bool both_buffers) {
  return std::int64_t{group.layout.staging_bytes} * (both_buffers ? 2 : 1) / group.size / 16 * 16;
}

// Slot `slot` of `writer` in the staging of `rank`.
GANTRY_HD inline std::byte* slot_of(const Group& group, int rank, int writer, std::uint32_t epoch,
                                    bool both_buffers, std::int64_t slot, std::int64_t slot_bytes) {
  const Layout& layout = group.layout;
  const std::int64_t buffer = both_buffers ? 0 : static_cast<std::int64_t>(epoch & 1);
  return group.workspaces[rank] + layout.staging + buffer * layout.staging_bytes +
         writer * region_bytes(group, both_buffers) + slot * slot_bytes;
}

// More chunks than any operation has.
inline constexpr std::int64_t kAllChunks = INT32_MAX;

GANTRY_HD inline std::int64_t chunk_count(std::int64_t bytes, std::int64_t chunk_bytes,
                                          int blocks) {
  const std::int64_t per_chunk = chunk_bytes * blocks;
  const std::int64_t chunks = per_chunk == 0 ? 0 : (bytes + per_chunk - 1) / per_chunk;
  return chunks > 1 ? chunks : 1;
}

template <class T>
class OneShotTask {
 public:
  GANTRY_HD OneShotTask(const OneShot& plan, int block, int blocks, std::uint32_t epoch)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), epoch_(epoch) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (plan.send_bytes[p] > most_) most_ = plan.send_bytes[p];
      if (plan.receive_bytes[p] > most_) most_ = plan.receive_bytes[p];
    }
  }

  GANTRY_HD std::int64_t chunks() const { return chunk_count(most_, plan_.chunk_bytes, blocks_); }

  // Signals this rank's call to all peers, before data is staged.
  template <class Role>
  GANTRY_HD void signal_entry(Role& role) {
    signal_entries(role, group_, block_, epoch_, [&](int p) { return plan_.digests[p]; });
  }
  template <class Role>
  GANTRY_HD bool wait_all_entries(Role& role) {
    return wait_entries(role, group_, plan_.call, block_, epoch_,
                        [&](int p) { return plan_.expected[p]; });
  }

  // Sends one chunk. Returns false if the operation must end; so does receive().
  template <class Role>
  GANTRY_HD bool send(Role& role, std::int64_t chunk) {
    if (chunk >= kOneShotSlots && (!role.wait_role(kReceiveRole, chunk - kOneShotSlots + 1) ||
                                   !wait_empty(role, chunk - kOneShotSlots))) {
      return false;
    }
    const std::int64_t begin = begin_of(chunk);
    role.copy(group_.size, plan_.chunk_bytes, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int p = (group_.rank + turn) % group_.size;
      // A rank's slice for itself is copied from `in`, unless it is reduced.
      const bool skip = p == group_.rank && !kReduces<T>;
      return Run{slot_at(p, group_.rank, chunk), plan_.in + plan_.send_offset[p] + begin,
                 skip ? 0 : clipped(plan_.send_bytes[p], begin, plan_.chunk_bytes)};
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
  GANTRY_HD bool receive(Role& role, std::int64_t chunk) {
    if (!wait_full(role, chunk)) return false;
    const std::int64_t begin = begin_of(chunk);
    if constexpr (kReduces<T>) {
      // This rank's own slice must be staged, too.
      if (!role.wait_role(kSendRole, chunk + 1)) return false;
      const std::int64_t bytes =
          clipped(plan_.receive_bytes[group_.rank], begin, plan_.chunk_bytes);
      if (bytes == 0) return true;
      role.template reduce<T>(
          plan_.how, {&plan_.out, begin, 1}, bytes,
          StridedArrays<1>{slot_at(group_.rank, 0, chunk), region_bytes(group_, plan_.both_buffers),
                           group_.size});
    } else {
      role.copy(group_.size, plan_.chunk_bytes, [&](int p) {
        std::byte* to = plan_.out + plan_.receive_offset[p] + begin;
        const std::byte* from = p == group_.rank ? plan_.in + plan_.send_offset[p] + begin
                                                 : slot_at(group_.rank, p, chunk);
        const std::int64_t bytes = clipped(plan_.receive_bytes[p], begin, plan_.chunk_bytes);
        return Run{to, from, to == from ? 0 : bytes};
      });
    }
    return true;
  }

  // Signals to all peers that their slot of `chunk` is free, if a rank waits for that.
  template <class Role>
  GANTRY_HD void signal_empty(Role& role, std::int64_t chunk) {
    const std::int64_t all = chunks();
    if (plan_.uneven || chunk + kOneShotSlots < all || (plan_.both_buffers && chunk + 1 == all)) {
      signal_chunks(role, group_, &SignalPad::empty, block_, epoch_, chunk + 1);
    }
  }
  template <class Role>
  GANTRY_HD bool wait_empty(Role& role, std::int64_t chunk) {
    return wait_chunks(role, group_, pad_of(group_, group_.rank).empty[block_], plan_.call, epoch_,
                       static_cast<std::uint32_t>(chunk + 1));
  }
  // Signals the end of this rank's chunks, for peers that have more.
  template <class Role>
  GANTRY_HD void signal_all_chunks(Role& role) {
    signal_chunks(role, group_, &SignalPad::full, block_, epoch_, kAllChunks);
    signal_chunks(role, group_, &SignalPad::empty, block_, epoch_, kAllChunks);
  }

 private:
  static constexpr int kSendRole = 0;
  static constexpr int kReceiveRole = 1;

  template <class Role>
  GANTRY_HD bool wait_full(Role& role, std::int64_t chunk) {
    if (chunk == 0 && !plan_.both_buffers) return wait_all_entries(role);
    return wait_chunks(role, group_, pad_of(group_, group_.rank).full[block_], plan_.call, epoch_,
                       static_cast<std::uint32_t>(chunk + 1));
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t chunk) const {
    return (chunk * blocks_ + block_) * plan_.chunk_bytes;
  }
  // The slot of `writer`'s slice for `rank`.
  GANTRY_HD std::byte* slot_at(int rank, int writer, std::int64_t chunk) const {
    return slot_of(group_, rank, writer, epoch_, plan_.both_buffers,
                   chunk % kOneShotSlots * blocks_ + block_, plan_.chunk_bytes);
  }

  const OneShot& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t epoch_;
  std::int64_t most_ = 0;  // bytes of the largest slice
};

// Note [Withdrawal]
// In an uneven operation every pair of ranks may agree or differ on the sizes of its slices. A rank
// that differs from a peer ends the operation. Peers that agree with it would wait for its chunks,
// so it withdraws its entry. The withdrawn entry stays visible until these peers begin the next
// operation. They withdraw their entries, too. A chunk of the next operation implies the end of
// this one (has_reached()). A rank that failed therefore remains in the operation until each
// agreeing peer has reached the end or has withdrawn its entry.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void withdraw(Block block, const OneShot& plan, std::uint32_t epoch) {
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
    const std::uint64_t agreed = signal_word(epoch, plan.expected[p]);
    for (std::uint32_t spins = 1;
         block.acquire(entry) == agreed &&
         !has_reached(block.acquire(&pad.empty[index][p]), epoch, kAllChunks);
         ++spins) {
      if (spins % kPollsPerCheck == 0 &&
          check_abort(block, group, plan.call, epoch) != Outcome::done) {
        return;
      }
      block.pause(spins);
    }
  });
}

template <class T, class Block>
GANTRY_HD void one_shot(Block& block, const OneShot& plan) {
  std::uint32_t epoch = 0;
  if (!begin(block, plan.group, plan.call, epoch)) return;
  OneShotTask<T> task(plan, block.index(), block.count(), epoch);
  bool complete = true;
  if (plan.both_buffers) {
    task.signal_entry(block);
    complete = task.wait_all_entries(block);
  }
  complete = complete &&
             block.template pipeline<8, 8>(
                 task.chunks(),
                 Stage{[&](auto& role, std::int64_t chunk) { return task.send(role, chunk); },
                       [&](auto& role, std::int64_t chunk) { task.signal_full(role, chunk); }},
                 Stage{[&](auto& role, std::int64_t chunk) { return task.receive(role, chunk); },
                       [&](auto& role, std::int64_t chunk) { task.signal_empty(role, chunk); }});
  if (complete && plan.uneven) task.signal_all_chunks(block);
  if (!complete && plan.uneven) withdraw(block, plan, epoch);
  if (complete && plan.both_buffers) task.wait_empty(block, task.chunks() - 1);
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
