// Owners make one part each of the result from what the sources push to them, and pass it on.
#pragma once

#include "collectives/algorithms/exchange.inl"

namespace gantry::protocol {

// Note [Relay]
// With n ranks every link carries the array about once in each direction, wherever it comes from
// and goes to, instead of n-1 times: sources push one part to each owner, who pushes what it makes
// of it to all takers. For one source or one taker the owners are the others, so that the root's
// link carries no part twice.
//
// Three crews push, make parts, and take (Note [Crews]). The place of a source's offer is free
// again when its owner made "ready" the part a ring of slots ago, that of an owner's part when it
// was taken. Where a rank gets both from another one, its slots have two places.

template <class T>
class RelayShare {
 public:
  GANTRY_HD RelayShare(const Relay& plan, int block, int blocks, std::uint32_t sequence)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), sequence_(sequence) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.owners, p)) idle_ = p;
      if (plan.sources == std::uint32_t{1} << p) only_source_ = p;
    }
  }

  GANTRY_HD std::int64_t steps() const { return steps_of(plan_.bytes, plan_.step_bytes, blocks_); }

  // Says to all peers what is called, before anything is staged.
  template <class Crew>
  GANTRY_HD void announce_call(Crew& crew) {
    say_call(crew, group_, block_, sequence_, [&](int) { return plan_.digest; });
  }
  template <class Crew>
  GANTRY_HD bool await_calls(Crew& crew) {
    return await_entries(crew, group_, plan_.call, block_, sequence_,
                         [&](int) { return plan_.digest; });
  }

  // False if the operation cannot go on; as the stages below.
  template <class Crew>
  GANTRY_HD bool push(Crew& crew, std::int64_t step) {
    if (step >= kRelayRing && (!crew.await_crew(kMakers, step - kRelayRing + 1) ||
                               !await_ready(crew, step - kRelayRing))) {
      return false;
    }
    if (!has(plan_.sources, group_.rank)) return true;
    const std::int64_t bytes = bytes_of(step);
    crew.copy(group_.size, plan_.part_bytes, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int owner = (group_.rank + turn) % group_.size;
      const std::int64_t at = owner_index(owner) * plan_.part_bytes;
      return Run{offer_at(owner, step, group_.rank), plan_.in + begin_of(step) + at,
                 owner == idle_ ? 0 : clipped(bytes, at, plan_.part_bytes)};
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
  GANTRY_HD bool make_part(Crew& crew, std::int64_t step) {
    if (!crew.await_crew(kPushers, step + 1) || !await_staged(crew, step)) return false;
    if (step >= kRelayRing && (!crew.await_crew(kTakers, step - kRelayRing + 1) ||
                               !await_taken(crew, step - kRelayRing))) {
      return false;
    }
    if (!has(plan_.owners, group_.rank)) return true;
    const std::int64_t at = owner_index(group_.rank) * plan_.part_bytes;
    const std::int64_t bytes = clipped(bytes_of(step), at, plan_.part_bytes);
    if (bytes == 0) return true;
    if constexpr (kCombines<T>) {
      const std::int64_t offset = part_at(0, step, group_.rank) - group_.workspaces[0];
      crew.template fold<T>(plan_.how, {group_.workspaces, offset, plan_.takers}, bytes,
                            Sources<3>{offer_at(group_.rank, step, 0),
                                       region_bytes(group_, plan_.whole), group_.size});
    } else {
      crew.copy(group_.size, bytes, [&](int turn) {
        const int p = (group_.rank + turn) % group_.size;
        return Run{part_at(p, step, group_.rank), offer_at(group_.rank, step, only_source_),
                   has(plan_.takers, p) ? bytes : 0};
      });
    }
    return true;
  }

  template <class Crew>
  GANTRY_HD void announce_part(Crew& crew, std::int64_t step) {
    say_steps(crew, group_, &SignalPad::ready, block_, sequence_, step + 1);
  }

  template <class Crew>
  GANTRY_HD bool take(Crew& crew, std::int64_t step) {
    if (!crew.await_crew(kMakers, step + 1) || !await_ready(crew, step)) return false;
    if (!has(plan_.takers, group_.rank)) return true;
    const std::int64_t bytes = bytes_of(step);
    crew.copy(group_.size, plan_.part_bytes, [&](int owner) {
      const std::int64_t at = owner_index(owner) * plan_.part_bytes;
      return Run{plan_.out + begin_of(step) + at, part_at(group_.rank, step, owner),
                 owner == idle_ ? 0 : clipped(bytes, at, plan_.part_bytes)};
    });
    return true;
  }

  // Says to all peers that their part of step `step` is taken, if somebody waits for that.
  template <class Crew>
  GANTRY_HD void announce_taken(Crew& crew, std::int64_t step) {
    const std::int64_t all = steps();
    if (step + kRelayRing < all || (plan_.whole && step + 1 == all)) {
      say_steps(crew, group_, &SignalPad::taken, block_, sequence_, step + 1);
    }
  }
  template <class Crew>
  GANTRY_HD bool await_taken(Crew& crew, std::int64_t step) {
    return await_steps(crew, group_, pad_of(group_, group_.rank).taken[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step + 1));
  }

 private:
  static constexpr int kPushers = 0;
  static constexpr int kMakers = 1;
  static constexpr int kTakers = 2;

  // Parts are numbered over the owners.
  GANTRY_HD int owner_index(int rank) const { return idle_ >= 0 && rank > idle_ ? rank - 1 : rank; }

  template <class Crew>
  GANTRY_HD bool await_staged(Crew& crew, std::int64_t step) {
    if (step == 0 && !plan_.whole) return await_calls(crew);
    return await_steps(crew, group_, pad_of(group_, group_.rank).staged[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step + 1));
  }
  template <class Crew>
  GANTRY_HD bool await_ready(Crew& crew, std::int64_t step) {
    return await_steps(crew, group_, pad_of(group_, group_.rank).ready[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step + 1));
  }

  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * blocks_ + block_) * plan_.step_bytes;
  }
  GANTRY_HD std::int64_t bytes_of(std::int64_t step) const {
    return clipped(plan_.bytes, begin_of(step), plan_.step_bytes);
  }
  GANTRY_HD std::byte* slot_at(int rank, int writer, std::int64_t step) const {
    return slot_of(group_, rank, writer, sequence_, plan_.whole,
                   step % kRelayRing * blocks_ + block_, plan_.part_bytes * plan_.slot_places);
  }
  // The place in `rank`'s staging of what `source` offers for its part.
  GANTRY_HD std::byte* offer_at(int rank, std::int64_t step, int source) const {
    return slot_at(rank, source, step);
  }
  // The place in `rank`'s staging of the part that `owner` made.
  GANTRY_HD std::byte* part_at(int rank, std::int64_t step, int owner) const {
    return slot_at(rank, owner, step) + (plan_.slot_places - 1) * plan_.part_bytes;
  }

  const Relay& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t sequence_;
  int idle_ = -1;         // the rank that owns nothing, if there is one
  int only_source_ = -1;  // if there is only one
};

template <class T, class Block>
GANTRY_HD void relay(Block& block, const Relay& plan) {
  std::uint32_t sequence = 0;
  if (!begin(block, plan.group, plan.call, sequence)) return;
  RelayShare<T> share(plan, block.index(), block.count(), sequence);
  bool complete = true;
  if (plan.whole) {
    share.announce_call(block);
    complete = share.await_calls(block);
  }
  complete = complete &&
             block.template pipeline<5, 6, 5>(
                 share.steps(),
                 Stage{[&](auto& crew, std::int64_t step) { return share.push(crew, step); },
                       [&](auto& crew, std::int64_t step) { share.announce(crew, step); }},
                 Stage{[&](auto& crew, std::int64_t step) { return share.make_part(crew, step); },
                       [&](auto& crew, std::int64_t step) { share.announce_part(crew, step); }},
                 Stage{[&](auto& crew, std::int64_t step) { return share.take(crew, step); },
                       [&](auto& crew, std::int64_t step) { share.announce_taken(crew, step); }});
  if (complete && plan.whole) share.await_taken(block, share.steps() - 1);
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
