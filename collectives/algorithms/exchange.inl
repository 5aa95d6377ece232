// Every rank writes what it offers to the staging of those who take it.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Steps]
// A block moves its share in steps, so that it needs little staging and that no link idles: one
// crew pushes step after step to the peers and says so, another takes what peers pushed (Note
// [Crews]) and says that its place is free for the step that comes a ring of slots later.
//
// Data cross links as writes, which nobody waits for, and are read where they came to lie.
//
// Note [Whole staging]
// An operation of many steps has the staging of both parities, for steps twice as large: a signal
// that is ordered behind data costs microseconds. Then the previous operation's staging must be
// free, too, so everyone has entered before anything is pushed; and nobody leaves before everyone
// has taken everything, because the next operation may use any part.

// Bytes of a rank's staging that belong to each rank: nobody else writes there, whatever it calls.
GANTRY_HD inline std::int64_t region_bytes(const Group& group, bool whole) {
  return std::int64_t{group.layout.staging_bytes} * (whole ? 2 : 1) / group.size / 16 * 16;
}

// Slot `slot` of what `writer` writes to `rank`'s staging.
GANTRY_HD inline std::byte* slot_of(const Group& group, int rank, int writer,
                                    std::uint32_t sequence, bool whole, std::int64_t slot,
                                    std::int64_t slot_bytes) {
  const Layout& layout = group.layout;
  const std::int64_t half = whole ? 0 : static_cast<std::int64_t>(sequence & 1);
  return group.workspaces[rank] + layout.staging + half * layout.staging_bytes +
         writer * region_bytes(group, whole) + slot * slot_bytes;
}

// More steps than any operation has.
inline constexpr std::int64_t kAllSteps = INT32_MAX;

GANTRY_HD inline std::int64_t steps_of(std::int64_t bytes, std::int64_t step_bytes, int blocks) {
  const std::int64_t per_step = step_bytes * blocks;
  const std::int64_t steps = per_step == 0 ? 0 : (bytes + per_step - 1) / per_step;
  return steps > 1 ? steps : 1;
}

template <class T>
class ExchangeShare {
 public:
  GANTRY_HD ExchangeShare(const Exchange& plan, int block, int blocks, std::uint32_t sequence)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), sequence_(sequence) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (plan.offer_bytes[p] > most_) most_ = plan.offer_bytes[p];
      if (plan.take_bytes[p] > most_) most_ = plan.take_bytes[p];
    }
  }

  GANTRY_HD std::int64_t steps() const { return steps_of(most_, plan_.step_bytes, blocks_); }

  // Says to all peers what is called, before anything is staged.
  template <class Crew>
  GANTRY_HD void announce_call(Crew& crew) {
    say_call(crew, group_, block_, sequence_, [&](int p) { return plan_.digests[p]; });
  }
  template <class Crew>
  GANTRY_HD bool await_calls(Crew& crew) {
    return await_entries(crew, group_, plan_.call, block_, sequence_,
                         [&](int p) { return plan_.expected[p]; });
  }

  // False if the operation cannot go on; as the stages below.
  template <class Crew>
  GANTRY_HD bool push(Crew& crew, std::int64_t step) {
    if (step >= kExchangeRing && (!crew.await_crew(kTakers, step - kExchangeRing + 1) ||
                                  !await_taken(crew, step - kExchangeRing))) {
      return false;
    }
    const std::int64_t begin = begin_of(step);
    crew.copy(group_.size, plan_.step_bytes, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int p = (group_.rank + turn) % group_.size;
      // What a rank offers itself is taken straight from `in`, unless it is folded.
      const bool skip = p == group_.rank && !kCombines<T>;
      return Run{slot_at(p, group_.rank, step), plan_.in + plan_.offer_at[p] + begin,
                 skip ? 0 : clipped(plan_.offer_bytes[p], begin, plan_.step_bytes)};
    });
    return true;
  }

  // Says to all peers that they have step `step`. What is called is said first, or with step 0.
  template <class Crew>
  GANTRY_HD void announce(Crew& crew, std::int64_t step) {
    if (step == 0 && !plan_.whole) return announce_call(crew);
    say_steps(crew, group_, &SignalPad::staged, block_, sequence_, step + 1);
  }

  template <class Crew>
  GANTRY_HD bool take(Crew& crew, std::int64_t step) {
    if (!await_staged(crew, step)) return false;
    const std::int64_t begin = begin_of(step);
    if constexpr (kCombines<T>) {
      // This rank's own offer, too.
      if (!crew.await_crew(kPushers, step + 1)) return false;
      const std::int64_t bytes = clipped(plan_.take_bytes[group_.rank], begin, plan_.step_bytes);
      if (bytes == 0) return true;
      crew.template fold<T>(plan_.how, {&plan_.out, begin, 1}, bytes,
                            Sources<1>{slot_at(group_.rank, 0, step),
                                       region_bytes(group_, plan_.whole), group_.size});
    } else {
      crew.copy(group_.size, plan_.step_bytes, [&](int p) {
        std::byte* to = plan_.out + plan_.take_at[p] + begin;
        const std::byte* from =
            p == group_.rank ? plan_.in + plan_.offer_at[p] + begin : slot_at(group_.rank, p, step);
        const std::int64_t bytes = clipped(plan_.take_bytes[p], begin, plan_.step_bytes);
        return Run{to, from, to == from ? 0 : bytes};
      });
    }
    return true;
  }

  // Says to all peers that their step `step` is taken, if somebody waits for that.
  template <class Crew>
  GANTRY_HD void announce_taken(Crew& crew, std::int64_t step) {
    const std::int64_t all = steps();
    if (plan_.uneven || step + kExchangeRing < all || (plan_.whole && step + 1 == all)) {
      say_steps(crew, group_, &SignalPad::taken, block_, sequence_, step + 1);
    }
  }
  template <class Crew>
  GANTRY_HD bool await_taken(Crew& crew, std::int64_t step) {
    return await_steps(crew, group_, pad_of(group_, group_.rank).taken[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step + 1));
  }
  // Peers with more steps need not wait for this rank again.
  template <class Crew>
  GANTRY_HD void announce_all(Crew& crew) {
    say_steps(crew, group_, &SignalPad::staged, block_, sequence_, kAllSteps);
    say_steps(crew, group_, &SignalPad::taken, block_, sequence_, kAllSteps);
  }

 private:
  static constexpr int kPushers = 0;
  static constexpr int kTakers = 1;

  template <class Crew>
  GANTRY_HD bool await_staged(Crew& crew, std::int64_t step) {
    if (step == 0 && !plan_.whole) return await_calls(crew);
    return await_steps(crew, group_, pad_of(group_, group_.rank).staged[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step + 1));
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * blocks_ + block_) * plan_.step_bytes;
  }
  // Where what `writer` offers to `rank` lies.
  GANTRY_HD std::byte* slot_at(int rank, int writer, std::int64_t step) const {
    return slot_of(group_, rank, writer, sequence_, plan_.whole,
                   step % kExchangeRing * blocks_ + block_, plan_.step_bytes);
  }

  const Exchange& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t sequence_;
  std::int64_t most_ = 0;  // bytes that this rank offers to, or takes from, one other
};

// Note [Withdrawal]
// In an uneven operation every two ranks agree, or not, on what is theirs. Who does not ends the
// operation, and must tell those with whom it agrees: they would wait for its steps. It takes back
// its entry, which stays until they begin the next operation, and they do the same. But a step of
// the next operation says that this one is done (has_come()), so nobody who failed goes on before
// everyone with whom it agrees waits for no more steps, having come to the end or taken back its
// entry.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void withdraw(Block block, const Exchange& plan, std::uint32_t sequence) {
  const Group& group = plan.group;
  const int index = block.index();
  block.for_each_rank(group.size, [&](int p) {
    // After an abort the others must not take it for a mismatch; nothing comes next.
    if (p == group.rank || block.is_aborted(group.words)) return;
    block.release(&pad_of(group, p).entry[sequence & 1][index][group.rank],
                  signal(sequence, kWithdrawn));
  });
  block.for_each_rank(group.size, [&](int p) {
    if (p == group.rank) return;
    const SignalPad& pad = pad_of(group, group.rank);
    const std::uint64_t* entry = &pad.entry[sequence & 1][index][p];
    const std::uint64_t agreed = signal(sequence, plan.expected[p]);
    for (std::uint32_t spins = 1;
         block.acquire(entry) == agreed &&
         !has_come(block.acquire(&pad.taken[index][p]), sequence, kAllSteps);
         ++spins) {
      if (spins % kPollsPerLook == 0 && look(block, group, plan.call, sequence) != Outcome::done) {
        return;
      }
      block.pause(spins);
    }
  });
}

template <class T, class Block>
GANTRY_HD void exchange(Block& block, const Exchange& plan) {
  std::uint32_t sequence = 0;
  if (!begin(block, plan.group, plan.call, sequence)) return;
  ExchangeShare<T> share(plan, block.index(), block.count(), sequence);
  bool complete = true;
  if (plan.whole) {
    share.announce_call(block);
    complete = share.await_calls(block);
  }
  complete = complete &&
             block.template pipeline<8, 8>(
                 share.steps(),
                 Stage{[&](auto& crew, std::int64_t step) { return share.push(crew, step); },
                       [&](auto& crew, std::int64_t step) { share.announce(crew, step); }},
                 Stage{[&](auto& crew, std::int64_t step) { return share.take(crew, step); },
                       [&](auto& crew, std::int64_t step) { share.announce_taken(crew, step); }});
  if (complete && plan.uneven) share.announce_all(block);
  if (!complete && plan.uneven) withdraw(block, plan, sequence);
  if (complete && plan.whole) share.await_taken(block, share.steps() - 1);
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
