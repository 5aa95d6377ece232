// Owners make one part each of the result from what the sources staged, and pass it on.
#pragma once

#include "collectives/algorithms/exchange.inl"

namespace gantry::protocol {

// Note [Relay]
// With n ranks every link carries the array about once in each direction, wherever it comes from
// and goes to, instead of n-1 times: an owner reads its part of every source's array, takers read
// a part from every owner. For one source or one taker the owners are the others, so that the
// root's link carries no part twice.
//
// Three crews stage, make parts, and take (Note [Crews]). Before a rank stages step k it has
// awaited "ready k - kRelayRing" of all peers, who made their parts of that step from what it
// staged then, and has taken that step itself; so before it makes its part of step k, for which it
// awaits their "staged k", all of them took the part whose place it gets.

template <class T>
class RelayShare {
 public:
  GANTRY_HD RelayShare(const Relay& plan, int block, int blocks, std::uint32_t sequence)
      : plan_(plan), group_(plan.group), block_(block), blocks_(blocks), sequence_(sequence) {
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.owners, p)) idle_ = p;
      if (has(plan.sources, p)) last_source_ = p;
    }
  }

  GANTRY_HD std::int64_t steps() const { return steps_of(plan_.bytes, plan_.step_bytes, blocks_); }

  // False if the operation cannot go on; as the stages below.
  template <class Crew>
  GANTRY_HD bool stage(Crew& crew, std::int64_t step) {
    if (step >= kRelayRing) {
      if (!crew.await_crew(kTakers, step - kRelayRing + 1)) return false;
      if (!await_ready(crew, step - kRelayRing)) return false;
    }
    if (has(plan_.sources, group_.rank)) {
      const std::int64_t bytes = bytes_of(step);
      crew.copy(1, bytes, [&](int) {
        return Run{slot_at(group_.rank, step), plan_.in + begin_of(step), bytes};
      });
    }
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
                     signal(sequence_, plan_.digest));
      } else {
        crew.release(&pad.staged[block_][group_.rank],
                     signal(sequence_, static_cast<std::uint32_t>(step)));
      }
    });
  }

  template <class Crew>
  GANTRY_HD bool make_part(Crew& crew, std::int64_t step) {
    if (!crew.await_crew(kStagers, step + 1) || !await_staged(crew, step)) return false;
    if (has(plan_.owners, group_.rank)) {
      const std::int64_t at = owner_index(group_.rank) * plan_.part_bytes;
      const std::int64_t bytes = clipped(bytes_of(step), at, plan_.part_bytes);
      std::byte* part = slot_at(group_.rank, step) + plan_.step_bytes;
      if constexpr (kCombines<T>) {
        if (bytes > 0) {
          const std::int64_t offset = slot_at(0, step) + at - group_.workspaces[0];
          crew.template fold<T>(plan_.how, part, bytes, {group_.workspaces, offset, group_.size});
        }
      } else {
        crew.copy(1, bytes, [&](int) {
          return Run{part, slot_at(last_source_, step) + at, bytes};
        });
      }
    }
    return true;
  }

  template <class Crew>
  GANTRY_HD void announce_part(Crew& crew, std::int64_t step) {
    crew.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      crew.release(&pad_of(group_, p).ready[block_][group_.rank],
                   signal(sequence_, static_cast<std::uint32_t>(step + 1)));
    });
  }

  template <class Crew>
  GANTRY_HD bool take(Crew& crew, std::int64_t step) {
    if (!crew.await_crew(kMakers, step + 1) || !await_ready(crew, step)) return false;
    if (!has(plan_.takers, group_.rank)) return true;
    const std::int64_t bytes = bytes_of(step);
    crew.copy(group_.size, plan_.part_bytes, [&](int turn) {
      // Ranks begin with different owners, so that no link serves all at once.
      const int owner = (group_.rank + turn) % group_.size;
      const std::int64_t at = owner_index(owner) * plan_.part_bytes;
      return Run{plan_.out + begin_of(step) + at, slot_at(owner, step) + plan_.step_bytes,
                 owner == idle_ ? 0 : clipped(bytes, at, plan_.part_bytes)};
    });
    return true;
  }

 private:
  static constexpr int kStagers = 0;
  static constexpr int kMakers = 1;
  static constexpr int kTakers = 2;

  GANTRY_HD static bool has(std::uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }
  // Parts are numbered over the owners.
  GANTRY_HD int owner_index(int rank) const { return idle_ >= 0 && rank > idle_ ? rank - 1 : rank; }

  // Step 0 is staged with the entry, which says what is called.
  template <class Crew>
  GANTRY_HD bool await_staged(Crew& crew, std::int64_t step) {
    if (step == 0) {
      return await_entries(crew, group_, plan_.call, block_, sequence_,
                           [&](int) { return plan_.digest; });
    }
    return await_steps(crew, group_, pad_of(group_, group_.rank).staged[block_], plan_.call,
                       sequence_, static_cast<std::uint32_t>(step));
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
  GANTRY_HD std::byte* slot_at(int rank, std::int64_t step) const {
    return slot_of(group_, rank, sequence_, step, kRelayRing, block_, blocks_,
                   plan_.step_bytes + plan_.part_bytes);
  }

  const Relay& plan_;
  const Group& group_;
  int block_;
  int blocks_;
  std::uint32_t sequence_;
  int idle_ = -1;  // the rank that owns nothing, if there is one
  int last_source_ = 0;
};

template <class T, class Block>
GANTRY_HD void relay(Block& block, const Relay& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  RelayShare<T> share(plan, block.index(), block.count(), sequence);
  block.template pipeline<4, 6, 6>(
      share.steps(),
      Stage{[&](auto& crew, std::int64_t step) { return share.stage(crew, step); },
            [&](auto& crew, std::int64_t step) { share.announce(crew, step); }},
      Stage{[&](auto& crew, std::int64_t step) { return share.make_part(crew, step); },
            [&](auto& crew, std::int64_t step) { share.announce_part(crew, step); }},
      Stage{[&](auto& crew, std::int64_t step) { return share.take(crew, step); }, TellsNobody()});
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
