// The ring: every rank forwards its partial result to the next rank.
#pragma once

#include "collectives/algorithms/one_shot.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

// Note [Ring]
// A ring to or from one root sends every byte over each link of the ring once, in one direction.
// (NCCL's ring for these operations.) A broadcast goes from rank to rank and begins with the root.
// A reduce begins with rank 0, and every rank reduces the partial result with its own elements.
// That is the rank order in which sums are defined. A ring therefore serves dtypes that accumulate
// in their own type. The last rank sends the result to the root. The root receives it with a lag,
// so that forwarding never waits for the result.
//
// All warps of a block work on the same chunk. No warp begins chunk c + 2 before chunk c is
// signalled. Warp roles would allow more, but were measured to be a quarter slower here. Every warp
// waits for its own data. Chunks are as small as the cost of signals allows, because the last rank
// begins only after as many chunks as there are ranks.
//
// A block has a FIFO of slots for the previous rank's data. The root of a reduce has another FIFO
// for the result; the first rank uses its only FIFO for that. A last slot holds a copy of the
// rank's own elements if they are not aligned.

template <class T>
class RingTask {
 public:
  GANTRY_HD RingTask(const Ring& plan, int block, int blocks, std::uint32_t epoch)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), epoch_(epoch) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(plan.in) % 16 == 0;
    aligns_ = kReduces<T> && !is_first() && !is_aligned;
  }

  GANTRY_HD std::int64_t chunks() const {
    return chunk_count(plan_.bytes, plan_.chunk_bytes, blocks_);
  }

  // Waits until all ranks have entered, before data is sent. Returns false if the operation must
  // end; so do the functions below.
  template <class Block>
  GANTRY_HD bool enter(Block& block) {
    const auto digest = [&](int) { return plan_.digest; };
    signal_entries(block, group_, block_, epoch_, digest);
    return wait_entries(block, group_, plan_.call, block_, epoch_, digest);
  }
  // Waits until all ranks have received everything, see Note [Double buffering].
  template <class Block>
  GANTRY_HD void leave(Block& block) {
    signal_chunks(block, group_, &SignalPad::empty, block_, epoch_, chunks() + 1);
    wait_chunks(block, group_, pad_of(group_, group_.rank).empty[block_], plan_.call, epoch_,
                static_cast<std::uint32_t>(chunks() + 1));
  }

  template <class Block>
  GANTRY_HD bool run(Block& block) {
    const std::int64_t all = chunks();
    const std::int64_t lag = plan_.origin < 0 ? 0 : plan_.lag;
    GANTRY_ROLLED
    for (std::int64_t chunk = 0; chunk < all + lag; ++chunk) {
      const bool forwards = chunk < all;
      const std::int64_t received = plan_.origin < 0 ? -1 : chunk - lag;  // below 0: none
      if (forwards && aligns_) {
        block.copy(1, plan_.chunk_bytes, [&](int) {
          return Run{aligned_slot(), input_at(chunk), bytes_of(chunk)};
        });
        block.sync();
      }
      const bool goes_on = wait(block, chunk, forwards, received);
      if (goes_on) work(block, chunk, forwards, received);
      if (block.any(!goes_on)) return false;
      signal(block, chunk, forwards, received);
    }
    return true;
  }

 private:
  // FIFOs of slots.
  static constexpr int kFromPrevious = 0;
  GANTRY_HD int result_fifo() const { return plan_.fifos - 1; }

  GANTRY_HD bool is_first() const { return plan_.previous < 0; }
  GANTRY_HD bool sends() const { return plan_.next >= 0 && plan_.next != group_.rank; }

  // Forwards chunk `chunk`, reduced with this rank's own elements, and receives `received` of the
  // result.
  template <class Block>
  GANTRY_HD void work(Block& block, std::int64_t chunk, bool forwards, std::int64_t received) {
    const std::byte* const partial = slot_at(group_.rank, kFromPrevious, chunk);
    const Run to_next{sends() ? slot_at(plan_.next, kFromPrevious, chunk) : nullptr,
                      is_first() ? input_at(chunk) : partial, bytes_of(chunk)};
    if constexpr (kReduces<T>) {
      const bool starts = forwards && is_first();
      if (forwards && !is_first() && to_next.bytes > 0) combine(block, chunk, partial);
      const Run result =
          received < 0 ? Run{}
                       : Run{plan_.out + begin_of(received),
                             slot_at(group_.rank, result_fifo(), received), bytes_of(received)};
      const int runs = static_cast<int>(starts) + static_cast<int>(received >= 0);
      // In one call, so that all warps have a part.
      if (runs > 0) {
        block.copy(runs, plan_.chunk_bytes,
                   [&](int run) { return run == 0 && starts ? to_next : result; });
      }
    } else {
      const Run to_out =
          is_first() ? Run{} : Run{plan_.out + begin_of(chunk), partial, to_next.bytes};
      const int runs = static_cast<int>(sends()) + static_cast<int>(!is_first());
      block.copy(runs, plan_.chunk_bytes,
                 [&](int run) { return run == 0 && sends() ? to_next : to_out; });
    }
  }
  template <class Block>
  GANTRY_HD void combine(Block& block, std::int64_t chunk, const std::byte* partial) {
    const Pair both{partial, aligns_ ? aligned_slot() : input_at(chunk)};
    if (!sends()) {
      block.template reduce<T>(plan_.how, {&plan_.out, begin_of(chunk), 1}, bytes_of(chunk), both);
      return;
    }
    const std::int64_t offset =
        slot_at(0, plan_.is_last ? result_fifo() : kFromPrevious, chunk) - group_.workspaces[0];
    block.template reduce<T>(plan_.how, {group_.workspaces, offset, std::uint32_t{1} << plan_.next},
                             bytes_of(chunk), both);
  }

  // Waits for the previous rank's `chunk` and for a free slot at the next rank, if this rank
  // forwards, and for `received` of the result. Every warp waits on its own.
  template <class Block>
  GANTRY_HD bool wait(Block& block, std::int64_t chunk, bool forwards, std::int64_t received) {
    const SignalPad& mine = pad_of(group_, group_.rank);
    return block.each_finds(3, [&](int which) {
      if (which == 0) {
        return !forwards || is_first() || wait_peer(block, mine.full, plan_.previous, chunk);
      }
      if (which == 1) {
        return !forwards || !sends() || chunk < kRingSlots ||
               wait_peer(block, mine.empty, plan_.next, chunk - kRingSlots);
      }
      return received < 0 || wait_peer(block, mine.reduced, plan_.origin, received);
    });
  }
  // Waits until the semaphore of `peer` has reached `chunk`.
  template <class Block>
  GANTRY_HD bool wait_peer(Block& block, const Semaphores& words, int peer, std::int64_t chunk) {
    const Outcome outcome = wait_chunk(block, group_, peer, &words[block_][peer], plan_.call,
                                       epoch_, static_cast<std::uint32_t>(chunk + 1));
    if (outcome == Outcome::done) return true;
    block.note_reported();
    fail(block, group_, outcome, peer, plan_.call, epoch_);
    return false;
  }

  // Signals the chunks that are done to the ranks that wait for them.
  template <class Block>
  GANTRY_HD void signal(Block& block, std::int64_t chunk, bool forwards, std::int64_t received) {
    block.for_each_rank(3, [&](int which) {
      Semaphores* words = nullptr;
      if (which == 0 && forwards && sends()) {
        SignalPad& theirs = pad_of(group_, plan_.next);
        words = plan_.is_last ? &theirs.reduced : &theirs.full;
      } else if (which == 1 && forwards && !is_first()) {
        words = &pad_of(group_, plan_.previous).empty;
      } else if (which == 2 && received >= 0) {
        words = &pad_of(group_, plan_.origin).empty;
      }
      if (words == nullptr) return;
      const auto done = static_cast<std::uint32_t>((which == 2 ? received : chunk) + 1);
      block.release(&(*words)[block_][group_.rank], signal_word(epoch_, done));
    });
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t chunk) const {
    return (chunk * blocks_ + block_) * plan_.chunk_bytes;
  }
  GANTRY_HD std::int64_t bytes_of(std::int64_t chunk) const {
    return clipped(plan_.bytes, begin_of(chunk), plan_.chunk_bytes);
  }
  GANTRY_HD const std::byte* input_at(std::int64_t chunk) const {
    return plan_.in + begin_of(chunk);
  }
  GANTRY_HD std::byte* staging_at(int rank, std::int64_t slot) const {
    const Layout& layout = group_.layout;
    const std::int64_t buffer = plan_.both_buffers ? 0 : static_cast<std::int64_t>(epoch_ & 1);
    return group_.workspaces[rank] + layout.staging + buffer * layout.staging_bytes +
           (slot * blocks_ + block_) * plan_.chunk_bytes;
  }
  GANTRY_HD std::byte* slot_at(int rank, int fifo, std::int64_t chunk) const {
    return staging_at(rank, fifo * kRingSlots + chunk % kRingSlots);
  }
  GANTRY_HD std::byte* aligned_slot() const {
    return staging_at(group_.rank, std::int64_t{plan_.fifos} * kRingSlots);
  }

  const Ring& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t epoch_;
  bool aligns_ = false;  // copies its own elements to an aligned slot
};

template <class T, class Block>
GANTRY_HD void ring(Block& block, const Ring& plan) {
  std::uint32_t epoch = 0;
  if (!begin(block, plan.group, plan.call, epoch)) return;
  RingTask<T> task(plan, block.index(), block.count(), epoch);
  const bool complete = task.enter(block) && task.run(block);
  if (complete && plan.both_buffers) task.leave(block);
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
