// Every rank passes what it makes on to the next one.
#pragma once

#include "collectives/algorithms/exchange.inl"

namespace gantry::protocol {

// Note [Chain]
// Of all ways to one root, or from one, this one sends every byte over every link once, and in one
// direction. A broadcast goes from rank to rank, beginning with the root. A reduce begins with rank
// 0, and every rank combines what comes with its own: that is the order in which sums are defined,
// so it serves elements that are their own accumulators. The last rank sends the result to the
// root, which lags behind with taking it, so that the chain stays full.
//
// All warps of a block do the same step, and none begins the one after the next before the signal
// of this one is out: crews that run ahead were measured to be a quarter slower here. Every warp
// finds for itself that what it needs is there. Steps are as small as signals allow, because the
// last rank begins after as many as there are ranks.
//
// A block has a ring of slots for what the previous rank sends, one for the result, in case it is
// the root (the first rank has the other ring for that), and a slot for its own elements if they
// are not aligned.

template <class T>
class ChainShare {
 public:
  GANTRY_HD ChainShare(const Chain& plan, int block, int blocks, std::uint32_t sequence)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), sequence_(sequence) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(plan.in) % 16 == 0;
    aligns_ = kCombines<T> && !is_first() && !is_aligned;
  }

  GANTRY_HD std::int64_t steps() const { return steps_of(plan_.bytes, plan_.step_bytes, blocks_); }

  // All ranks enter before anything is passed on. False if the operation cannot go on; as below.
  template <class Block>
  GANTRY_HD bool enter(Block& block) {
    const auto digest = [&](int) { return plan_.digest; };
    say_call(block, group_, block_, sequence_, digest);
    return await_entries(block, group_, plan_.call, block_, sequence_, digest);
  }
  // And all have taken everything before one leaves, see Note [Whole staging].
  template <class Block>
  GANTRY_HD void leave(Block& block) {
    say_steps(block, group_, &SignalPad::taken, block_, sequence_, steps() + 1);
    await_steps(block, group_, pad_of(group_, group_.rank).taken[block_], plan_.call, sequence_,
                static_cast<std::uint32_t>(steps() + 1));
  }

  template <class Block>
  GANTRY_HD bool run(Block& block) {
    const std::int64_t all = steps();
    const std::int64_t lag = plan_.origin < 0 ? 0 : plan_.lag;
    GANTRY_ROLLED
    for (std::int64_t step = 0; step < all + lag; ++step) {
      const bool passes = step < all;
      const std::int64_t taken = plan_.origin < 0 ? -1 : step - lag;  // below 0: nothing
      if (passes && aligns_) {
        block.copy(1, plan_.step_bytes, [&](int) {
          return Run{own_place(), own(step), bytes_of(step)};
        });
        block.sync();
      }
      const bool goes_on = await(block, step, passes, taken);
      if (goes_on) work(block, step, passes, taken);
      if (block.any(!goes_on)) return false;
      tell(block, step, passes, taken);
    }
    return true;
  }

 private:
  // Rings of slots.
  static constexpr int kFromPrevious = 0;
  GANTRY_HD int result_ring() const { return plan_.rings - 1; }

  GANTRY_HD bool is_first() const { return plan_.previous < 0; }
  GANTRY_HD bool sends() const { return plan_.next >= 0 && plan_.next != group_.rank; }

  // Passes on what came, with this rank's own elements, and takes of the result.
  template <class Block>
  GANTRY_HD void work(Block& block, std::int64_t step, bool passes, std::int64_t taken) {
    const std::byte* const came = slot_at(group_.rank, kFromPrevious, step);
    const Run to_next{sends() ? slot_at(plan_.next, kFromPrevious, step) : nullptr,
                      is_first() ? own(step) : came, bytes_of(step)};
    if constexpr (kCombines<T>) {
      const bool starts = passes && is_first();
      if (passes && !is_first() && to_next.bytes > 0) combine(block, step, came);
      const Run result = taken < 0
                             ? Run{}
                             : Run{plan_.out + begin_of(taken),
                                   slot_at(group_.rank, result_ring(), taken), bytes_of(taken)};
      const int runs = static_cast<int>(starts) + static_cast<int>(taken >= 0);
      // In one call, so that all warps have a part.
      if (runs > 0) {
        block.copy(runs, plan_.step_bytes,
                   [&](int run) { return run == 0 && starts ? to_next : result; });
      }
    } else {
      const Run to_out = is_first() ? Run{} : Run{plan_.out + begin_of(step), came, to_next.bytes};
      const int runs = static_cast<int>(sends()) + static_cast<int>(!is_first());
      block.copy(runs, plan_.step_bytes,
                 [&](int run) { return run == 0 && sends() ? to_next : to_out; });
    }
  }
  template <class Block>
  GANTRY_HD void combine(Block& block, std::int64_t step, const std::byte* came) {
    const Pair both{came, aligns_ ? own_place() : own(step)};
    if (!sends()) {
      block.template fold<T>(plan_.how, {&plan_.out, begin_of(step), 1}, bytes_of(step), both);
      return;
    }
    const std::int64_t offset =
        slot_at(0, plan_.is_last ? result_ring() : kFromPrevious, step) - group_.workspaces[0];
    block.template fold<T>(plan_.how, {group_.workspaces, offset, std::uint32_t{1} << plan_.next},
                           bytes_of(step), both);
  }

  // Waits for what came from the previous rank and for the place at the next one, if this rank
  // passes on `step`, and for step `taken` of the result. Every warp waits for itself.
  template <class Block>
  GANTRY_HD bool await(Block& block, std::int64_t step, bool passes, std::int64_t taken) {
    const SignalPad& mine = pad_of(group_, group_.rank);
    return block.each_finds(3, [&](int which) {
      if (which == 0) {
        return !passes || is_first() || comes(block, mine.staged, plan_.previous, step);
      }
      if (which == 1) {
        return !passes || !sends() || step < kChainRing ||
               comes(block, mine.taken, plan_.next, step - kChainRing);
      }
      return taken < 0 || comes(block, mine.ready, plan_.origin, taken);
    });
  }
  // Waits until `peer` says in `words` that it is done with `step`.
  template <class Block>
  GANTRY_HD bool comes(Block& block, const StepWords& words, int peer, std::int64_t step) {
    const Outcome outcome = await_step(block, group_, peer, &words[block_][peer], plan_.call,
                                       sequence_, static_cast<std::uint32_t>(step + 1));
    if (outcome == Outcome::done) return true;
    block.note_told();
    fail(block, group_, outcome, peer, plan_.call, sequence_);
    return false;
  }

  // Says what is done now to those who wait for it.
  template <class Block>
  GANTRY_HD void tell(Block& block, std::int64_t step, bool passes, std::int64_t taken) {
    block.for_each_rank(3, [&](int which) {
      StepWords* words = nullptr;
      if (which == 0 && passes && sends()) {
        SignalPad& theirs = pad_of(group_, plan_.next);
        words = plan_.is_last ? &theirs.ready : &theirs.staged;
      } else if (which == 1 && passes && !is_first()) {
        words = &pad_of(group_, plan_.previous).taken;
      } else if (which == 2 && taken >= 0) {
        words = &pad_of(group_, plan_.origin).taken;
      }
      if (words == nullptr) return;
      const auto done = static_cast<std::uint32_t>((which == 2 ? taken : step) + 1);
      block.release(&(*words)[block_][group_.rank], signal(sequence_, done));
    });
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * blocks_ + block_) * plan_.step_bytes;
  }
  GANTRY_HD std::int64_t bytes_of(std::int64_t step) const {
    return clipped(plan_.bytes, begin_of(step), plan_.step_bytes);
  }
  GANTRY_HD const std::byte* own(std::int64_t step) const { return plan_.in + begin_of(step); }
  GANTRY_HD std::byte* staging_at(int rank, std::int64_t slot) const {
    const Layout& layout = group_.layout;
    const std::int64_t half = plan_.whole ? 0 : static_cast<std::int64_t>(sequence_ & 1);
    return group_.workspaces[rank] + layout.staging + half * layout.staging_bytes +
           (slot * blocks_ + block_) * plan_.step_bytes;
  }
  GANTRY_HD std::byte* slot_at(int rank, int ring, std::int64_t step) const {
    return staging_at(rank, ring * kChainRing + step % kChainRing);
  }
  GANTRY_HD std::byte* own_place() const {
    return staging_at(group_.rank, std::int64_t{plan_.rings} * kChainRing);
  }

  const Chain& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t sequence_;
  bool aligns_ = false;  // copies its own elements to where words are aligned
};

template <class T, class Block>
GANTRY_HD void chain(Block& block, const Chain& plan) {
  std::uint32_t sequence = 0;
  if (!begin(block, plan.group, plan.call, sequence)) return;
  ChainShare<T> share(plan, block.index(), block.count(), sequence);
  const bool complete = share.enter(block) && share.run(block);
  if (complete && plan.whole) share.leave(block);
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
