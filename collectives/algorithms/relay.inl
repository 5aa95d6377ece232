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
// Three steps are under way at once (see Note [Steps]): in turn k a block stages step k, makes its
// part of k-1, and takes the parts of k-2. Three slots suffice: before it stages step k it has
// awaited "ready k-3" of all peers, who made their parts of k-3 by then; before it makes its part
// of k-1 it has awaited their "staged k-1", which they said after they took the parts of k-4.

inline constexpr std::int64_t kAlignment = 16;

template <class T, class Block>
class RelayShare {
 public:
  GANTRY_HD RelayShare(Block& block, const Relay& plan, std::uint32_t sequence)
      : block_(block), plan_(plan), group_(plan.group), sequence_(sequence) {}

  GANTRY_HD std::int64_t steps() const {
    return steps_of(plan_.bytes, plan_.step_bytes, block_.count());
  }

  GANTRY_HD void stage(std::int64_t step) {
    if (has(plan_.sources, group_.rank)) {
      block_.copy(1, [&](int) {
        return Run{slot_at(group_.rank, step), plan_.in + begin_of(step), bytes_of(step)};
      });
    }
    block_.sync();
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      SignalPad& pad = pad_of(group_, p);
      if (step == 0) {
        block_.release(&pad.entry[sequence_ & 1][block_.index()][group_.rank],
                       signal(sequence_, plan_.digest));
      } else {
        block_.release(&pad.staged[block_.index()][group_.rank],
                       signal(sequence_, static_cast<std::uint32_t>(step)));
      }
    });
  }

  GANTRY_HD bool await_staged(std::int64_t step) {
    if (step == 0) {
      return await_entries(block_, group_, plan_.call, block_.index(), sequence_,
                           [&](int) { return plan_.digest; });
    }
    return await_steps(block_, group_, pad_of(group_, group_.rank).staged[block_.index()],
                       plan_.call, sequence_, static_cast<std::uint32_t>(step));
  }

  GANTRY_HD void make_part(std::int64_t step) {
    if (has(plan_.owners, group_.rank)) {
      const std::int64_t at = owner_index(group_.rank) * plan_.part_bytes;
      const std::int64_t bytes = clipped(bytes_of(step), at, plan_.part_bytes);
      std::byte* part = slot_at(group_.rank, step) + plan_.step_bytes;
      if (bytes > 0 && plan_.how.copies) {
        block_.copy(1, [&](int) { return Run{part, slot_at(only_source(), step) + at, bytes}; });
      } else if (bytes > 0) {
        block_.template fold<T>(plan_.how, part, bytes, group_.size,
                                [&](int p) { return slot_at(p, step) + at; });
      }
    }
    block_.sync();
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      block_.release(&pad_of(group_, p).ready[block_.index()][group_.rank],
                     signal(sequence_, static_cast<std::uint32_t>(step + 1)));
    });
  }

  GANTRY_HD bool await_parts(std::int64_t step) {
    return await_steps(block_, group_, pad_of(group_, group_.rank).ready[block_.index()],
                       plan_.call, sequence_, static_cast<std::uint32_t>(step + 1));
  }

  GANTRY_HD void take(std::int64_t step) {
    if (!has(plan_.takers, group_.rank)) return;
    block_.copy(group_.size, [&](int owner) {
      const std::int64_t at = owner_index(owner) * plan_.part_bytes;
      const std::int64_t bytes =
          has(plan_.owners, owner) ? clipped(bytes_of(step), at, plan_.part_bytes) : 0;
      return Run{plan_.out + begin_of(step) + at, slot_at(owner, step) + plan_.step_bytes, bytes};
    });
  }

 private:
  GANTRY_HD static bool has(std::uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }
  GANTRY_HD int owner_index(int rank) const {
    int index = 0;
    for (int p = 0; p < rank; ++p) index += has(plan_.owners, p) ? 1 : 0;
    return index;
  }
  GANTRY_HD int only_source() const {
    int rank = 0;
    while (!has(plan_.sources, rank)) ++rank;
    return rank;
  }
  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * block_.count() + block_.index()) * plan_.step_bytes;
  }
  GANTRY_HD std::int64_t bytes_of(std::int64_t step) const {
    return clipped(plan_.bytes, begin_of(step), plan_.step_bytes);
  }
  GANTRY_HD std::byte* slot_at(int rank, std::int64_t step) const {
    return slot_of(group_, rank, sequence_, step, kRelayRing, block_.index(), block_.count(),
                   plan_.step_bytes + plan_.part_bytes);
  }

  Block& block_;
  const Relay& plan_;
  const Group& group_;
  std::uint32_t sequence_;
};

template <class T, class Block>
GANTRY_HD void relay(Block& block, const Relay& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  RelayShare<T, Block> share(block, plan, sequence);
  const std::int64_t steps = share.steps();
  for (std::int64_t turn = 0; turn < steps + 2; ++turn) {
    if (turn < steps) share.stage(turn);
    if (turn >= 1 && turn <= steps) {
      if (!share.await_staged(turn - 1)) break;
      share.make_part(turn - 1);
    }
    if (turn >= 2) {
      if (!share.await_parts(turn - 2)) break;
      share.take(turn - 2);
    }
  }
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
