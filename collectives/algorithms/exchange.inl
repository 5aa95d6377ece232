// Every rank stages what it offers, and takes what others staged for it.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Steps]
// A block moves its share in steps, so that it needs little staging and that no link idles: one
// crew stages step after step and says so, another takes what peers staged (Note [Crews]). A rank
// says "staged k" when it also took step k - kLag. So whoever saw all peers say "staged
// k - kExchangeRing + kLag" knows that nobody reads what it staged kExchangeRing steps before k.

GANTRY_HD inline std::byte* slot_of(const Group& group, int rank, std::uint32_t sequence,
                                    std::int64_t step, int ring, int block, int blocks,
                                    std::int64_t slot_bytes) {
  const Layout& layout = group.layout;
  const std::int64_t slot = step % ring * blocks + block;
  return group.workspaces[rank] + layout.staging +
         static_cast<std::int64_t>(sequence & 1) * layout.staging_bytes + slot * slot_bytes;
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
    slot_bytes_ = plan.step_bytes * (plan.offers_one ? 1 : group_.size);
    for (int p = 0; p < group_.size; ++p) {
      if (plan.offer_bytes[p] > most_offered_) most_offered_ = plan.offer_bytes[p];
      if (plan.take_bytes[p] > most_taken_) most_taken_ = plan.take_bytes[p];
    }
  }

  GANTRY_HD std::int64_t steps() const {
    return steps_of(most_offered_ > most_taken_ ? most_offered_ : most_taken_, plan_.step_bytes,
                    blocks_);
  }

  // False if the operation cannot go on; as the stages below.
  template <class Crew>
  GANTRY_HD bool stage(Crew& crew, std::int64_t step) {
    if (step >= kLag && !crew.await_crew(kTakers, step - kLag + 1)) return false;
    if (step >= kExchangeRing && !await_staged(crew, step - kExchangeRing + kLag)) return false;
    fill(crew, step);
    return true;
  }

  // Says to all peers that step `step` is staged; the first time, what is called.
  template <class Crew>
  GANTRY_HD void announce(Crew& crew, std::int64_t step) {
    crew.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      SignalPad& pad = pad_of(group_, p);
      if (step == 0) {
        crew.release(&pad.entry[sequence_ & 1][block_][group_.rank],
                     signal(sequence_, plan_.digests[p]));
      } else {
        crew.release(&pad.staged[block_][group_.rank],
                     signal(sequence_, static_cast<std::uint32_t>(step)));
      }
    });
  }

  template <class Crew>
  GANTRY_HD bool take(Crew& crew, std::int64_t step) {
    if (!(step == 0 ? await_calls(crew) : await_staged(crew, step))) return false;
    if constexpr (kCombines<T>) {
      // This rank's own offer, too.
      return crew.await_crew(kStagers, step + 1) && (fold(crew, step), true);
    } else {
      copy(crew, step);
      return true;
    }
  }

  // Peers with more steps need not wait for this rank again.
  template <class Crew>
  GANTRY_HD void announce_all(Crew& crew) {
    announce(crew, kAllSteps);
  }

 private:
  static constexpr int kStagers = 0;
  static constexpr int kTakers = 1;
  static constexpr std::int64_t kLag = kExchangeRing / 2;

  template <class Crew>
  GANTRY_HD void fill(Crew& crew, std::int64_t step) {
    const std::int64_t begin = begin_of(step);
    std::byte* slot = slot_at(group_.rank, step);
    if (plan_.offers_one) {
      const std::byte* from = plan_.in + plan_.offer_at[group_.rank] + begin;
      const std::int64_t bytes = clipped(most_offered_, begin, plan_.step_bytes);
      crew.copy(1, bytes, [&](int) { return Run{slot, from, bytes}; });
      return;
    }
    crew.copy(group_.size, plan_.step_bytes, [&](int p) {
      // What a rank offers itself is taken straight from `in`, unless it is folded.
      const bool skip = p == group_.rank && !kCombines<T>;
      return Run{slot + p * plan_.step_bytes, plan_.in + plan_.offer_at[p] + begin,
                 skip ? 0 : clipped(plan_.offer_bytes[p], begin, plan_.step_bytes)};
    });
  }

  template <class Crew>
  GANTRY_HD bool await_calls(Crew& crew) {
    return await_entries(crew, group_, plan_.call, block_, sequence_,
                         [&](int p) { return plan_.expected[p]; });
  }
  template <class Crew>
  GANTRY_HD bool await_staged(Crew& crew, std::int64_t step) {
    return await_steps(crew, group_, pad_of(group_, group_.rank).staged[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step));
  }

  template <class Crew>
  GANTRY_HD void fold(Crew& crew, std::int64_t step) {
    const std::int64_t begin = begin_of(step);
    const std::int64_t bytes = clipped(plan_.take_bytes[group_.rank], begin, plan_.step_bytes);
    if (bytes == 0) return;
    const std::int64_t offset = offered_by(0, step) - group_.workspaces[0];
    crew.template fold<T>(plan_.how, plan_.out + begin, bytes,
                          {group_.workspaces, offset, group_.size});
  }

  template <class Crew>
  GANTRY_HD void copy(Crew& crew, std::int64_t step) {
    const std::int64_t begin = begin_of(step);
    crew.copy(group_.size, plan_.step_bytes, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int p = (group_.rank + turn) % group_.size;
      std::byte* to = plan_.out + plan_.take_at[p] + begin;
      const std::byte* from =
          p == group_.rank ? plan_.in + plan_.offer_at[p] + begin : offered_by(p, step);
      const std::int64_t bytes = clipped(plan_.take_bytes[p], begin, plan_.step_bytes);
      return Run{to, from, to == from ? 0 : bytes};
    });
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * blocks_ + block_) * plan_.step_bytes;
  }
  GANTRY_HD std::byte* slot_at(int rank, std::int64_t step) const {
    return slot_of(group_, rank, sequence_, step, kExchangeRing, block_, blocks_, slot_bytes_);
  }
  GANTRY_HD const std::byte* offered_by(int p, std::int64_t step) const {
    return slot_at(p, step) + (plan_.offers_one ? 0 : group_.rank * plan_.step_bytes);
  }

  const Exchange& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t sequence_;
  std::int64_t slot_bytes_;
  std::int64_t most_offered_ = 0;
  std::int64_t most_taken_ = 0;
};

template <class T, class Block>
GANTRY_HD void exchange(Block& block, const Exchange& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  ExchangeShare<T> share(plan, block.index(), block.count(), sequence);
  const bool complete = block.template pipeline<8, 8>(
      share.steps(),
      Stage{[&](auto& crew, std::int64_t step) { return share.stage(crew, step); },
            [&](auto& crew, std::int64_t step) { share.announce(crew, step); }},
      Stage{[&](auto& crew, std::int64_t step) { return share.take(crew, step); }, TellsNobody()});
  if (plan.uneven && complete) share.announce_all(block);
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
