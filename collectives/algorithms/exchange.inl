// Every rank stages what it offers, and takes what others staged for it.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Steps]
// A block moves its share in steps, so that it needs little staging and that no link idles: in
// turn k it stages step k, says so, and only then takes step k-1, which peers staged a turn ago.
// With four slots in turn nobody overwrites what is still read: a rank stages step k after it saw
// all peers say "staged k-2", which they said after they took step k-4.

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

template <class T, class Block>
class ExchangeShare {
 public:
  GANTRY_HD ExchangeShare(Block& block, const Exchange& plan, std::uint32_t sequence)
      : block_(block), plan_(plan), group_(plan.group), sequence_(sequence) {
    slot_bytes_ = plan.step_bytes * (plan.offers_one ? 1 : group_.size);
  }

  GANTRY_HD std::int64_t steps() const {
    std::int64_t most = 0;
    for (int p = 0; p < group_.size; ++p) {
      if (plan_.offer_bytes[p] > most) most = plan_.offer_bytes[p];
      if (plan_.take_bytes[p] > most) most = plan_.take_bytes[p];
    }
    return steps_of(most, plan_.step_bytes, block_.count());
  }

  GANTRY_HD void stage(std::int64_t step) {
    const std::int64_t begin = begin_of(step);
    std::byte* slot = slot_at(group_.rank, step);
    if (plan_.offers_one) {
      std::int64_t most = 0;
      for (int p = 0; p < group_.size; ++p) {
        if (plan_.offer_bytes[p] > most) most = plan_.offer_bytes[p];
      }
      block_.copy(1, [&](int) {
        return Run{slot, plan_.in + plan_.offer_at[group_.rank] + begin,
                   clipped(most, begin, plan_.step_bytes)};
      });
      return;
    }
    block_.copy(group_.size, [&](int p) {
      // What a rank offers itself is taken straight from `in`, unless it is folded.
      const bool skip = p == group_.rank && plan_.how.copies;
      return Run{slot + p * plan_.step_bytes, plan_.in + plan_.offer_at[p] + begin,
                 skip ? 0 : clipped(plan_.offer_bytes[p], begin, plan_.step_bytes)};
    });
  }

  // Says to all peers that step `step` is staged; the first time, what is called.
  GANTRY_HD void announce(std::int64_t step) {
    block_.sync();
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      SignalPad& pad = pad_of(group_, p);
      if (step == 0) {
        block_.release(&pad.entry[sequence_ & 1][block_.index()][group_.rank],
                       signal(sequence_, plan_.digests[p]));
      } else {
        block_.release(&pad.staged[block_.index()][group_.rank],
                       signal(sequence_, static_cast<std::uint32_t>(step)));
      }
    });
  }

  GANTRY_HD bool await(std::int64_t step) {
    if (step == 0) {
      return await_entries(block_, group_, plan_.call, block_.index(), sequence_,
                           [&](int p) { return plan_.expected[p]; });
    }
    return await_steps(block_, group_, pad_of(group_, group_.rank).staged[block_.index()],
                       plan_.call, sequence_, static_cast<std::uint32_t>(step));
  }

  GANTRY_HD void take(std::int64_t step) {
    const std::int64_t begin = begin_of(step);
    if (!plan_.how.copies) {
      const std::int64_t bytes = clipped(plan_.take_bytes[group_.rank], begin, plan_.step_bytes);
      if (bytes == 0) return;
      block_.template fold<T>(plan_.how, plan_.out + begin, bytes, group_.size,
                              [&](int p) { return offered_by(p, step); });
      return;
    }
    block_.copy(group_.size, [&](int p) {
      std::byte* to = plan_.out + plan_.take_at[p] + begin;
      const std::byte* from =
          p == group_.rank ? plan_.in + plan_.offer_at[p] + begin : offered_by(p, step);
      const std::int64_t bytes = clipped(plan_.take_bytes[p], begin, plan_.step_bytes);
      return Run{to, from, to == from ? 0 : bytes};
    });
  }

 private:
  GANTRY_HD std::int64_t begin_of(std::int64_t step) const {
    return (step * block_.count() + block_.index()) * plan_.step_bytes;
  }
  GANTRY_HD std::byte* slot_at(int rank, std::int64_t step) const {
    return slot_of(group_, rank, sequence_, step, kExchangeRing, block_.index(), block_.count(),
                   slot_bytes_);
  }
  GANTRY_HD const std::byte* offered_by(int p, std::int64_t step) const {
    return slot_at(p, step) + (plan_.offers_one ? 0 : group_.rank * plan_.step_bytes);
  }

  Block& block_;
  const Exchange& plan_;
  const Group& group_;
  std::uint32_t sequence_;
  std::int64_t slot_bytes_;
};

template <class T, class Block>
GANTRY_HD void exchange(Block& block, const Exchange& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  ExchangeShare<T, Block> share(block, plan, sequence);
  const std::int64_t steps = share.steps();
  for (std::int64_t turn = 0; turn <= steps; ++turn) {
    if (turn < steps) {
      share.stage(turn);
      share.announce(turn);
    } else if (plan.uneven) {
      // Peers with more steps need not wait for this rank again.
      share.announce(kAllSteps);
    }
    if (turn == 0) continue;
    if (!share.await(turn - 1)) break;
    share.take(turn - 1);
  }
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
