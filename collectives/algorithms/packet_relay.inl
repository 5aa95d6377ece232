// A relay in packets: two flights, no staging, no barrier.
#pragma once

#include "collectives/algorithms/packets.inl"

namespace gantry::protocol {

// As Note [Relay], in the packets of Note [Packets]: sources send one part of the array to each
// owner, in the rows of the first phase, who sends what it makes of it to all takers, in those of
// the second. (MSCCL++ has an all_reduce of this shape.)
template <class T, int Batch, class Block>
class PacketRelayShare {
 public:
  GANTRY_HD PacketRelayShare(Block& block, const PacketRelay& plan, std::uint32_t sequence)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        link_(block, plan.group, plan.call, plan.digest, sequence) {
    // Blocks have a run of every part, so that block b needs blocks b only.
    const std::int32_t run = (plan.part_words + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(plan.part_words, first_, run));
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.owners, p)) idle_ = p;
      if (plan.sources == std::uint32_t{1} << p) only_source_ = p;
    }
  }

  GANTRY_HD PacketLink<Block, Batch>& link() { return link_; }

  GANTRY_HD void push() {
    if (!has(plan_.sources, group_.rank)) return;
    block_.for_each(count_, [&](std::int64_t at) {
      const std::int32_t i = first_ + static_cast<std::int32_t>(at);
      GANTRY_ROLLED
      for (int first = 1; first < group_.size; first += Batch) {
        std::uint64_t words[Batch];
        for (int k = 0; k < Batch; ++k) {
          const int owner = owner_at(first + k);
          if (first + k < group_.size && is_in(owner, i)) words[k] = load(owner, i);
        }
        for (int k = 0; k < Batch; ++k) {
          const int owner = owner_at(first + k);
          if (first + k >= group_.size || !is_in(owner, i)) continue;
          link_.send(&link_.row(owner, 0, group_.rank)[i], words[k]);
        }
      }
    });
  }

  // False if this thread waited in vain, and said why.
  GANTRY_HD bool make_part() {
    if (!has(plan_.owners, group_.rank)) return true;
    bool complete = true;
    if constexpr (kCombines<T>) {
      kernels::with_fold<T>(plan_.how.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
          block_.for_each(count_, [&](std::int64_t at) {
            complete = complete && fold_word<F>(first_ + static_cast<std::int32_t>(at));
          });
        }
      });
    } else {
      block_.for_each(count_, [&](std::int64_t at) {
        complete = complete && forward_word(first_ + static_cast<std::int32_t>(at));
      });
    }
    return complete;
  }

  GANTRY_HD void take() {
    if (!has(plan_.takers, group_.rank)) return;
    bool complete = true;
    block_.for_each(count_, [&](std::int64_t at) {
      complete = complete && take_word(first_ + static_cast<std::int32_t>(at));
    });
  }

 private:
  // Parts are numbered over the owners.
  GANTRY_HD int owner_index(int rank) const { return idle_ >= 0 && rank > idle_ ? rank - 1 : rank; }
  GANTRY_HD std::int32_t word_of(int owner, std::int32_t i) const {
    return owner_index(owner) * plan_.part_words + i;
  }
  GANTRY_HD bool is_in(int owner, std::int32_t i) const {
    return has(plan_.owners, owner) && std::int64_t{word_of(owner, i)} * 8 < plan_.bytes;
  }
  GANTRY_HD std::uint64_t load(int owner, std::int32_t i) const {
    return load_word(plan_.in, word_of(owner, i), plan_.bytes);
  }
  GANTRY_HD void store(int owner, std::int32_t i, std::uint64_t word) const {
    store_word(plan_.out, word_of(owner, i), plan_.bytes, word);
  }

  // Ranks begin with different owners, so that no link serves all at once.
  GANTRY_HD int owner_at(int turn) const {
    const int owner = group_.rank + turn;
    return owner < group_.size ? owner : owner - group_.size;
  }

  GANTRY_HD void pass_on(std::int32_t i, std::uint64_t word) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (p != group_.rank && has(plan_.takers, p)) {
        link_.send(&link_.row(p, 1, group_.rank)[i], word);
      }
    }
    if (has(plan_.takers, group_.rank)) store(group_.rank, i, word);
  }

  template <class F>
  GANTRY_HD bool fold_word(std::int32_t i) {
    if (!is_in(group_.rank, i)) return true;
    const std::uint64_t own = load(group_.rank, i);
    const std::uint32_t peers = plan_.sources & ~(std::uint32_t{1} << group_.rank);
    WordFold<F, Block> folded(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch];
      if (!link_.receive(0, peers, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (first + k >= group_.size) continue;
        folded.add(first + k == group_.rank ? own : words[k], first + k == 0);
      }
    }
    pass_on(i, folded.result());
    return true;
  }

  GANTRY_HD bool forward_word(std::int32_t i) {
    if (!is_in(group_.rank, i)) return true;
    std::uint64_t words[Batch];
    if (!link_.receive(0, plan_.sources, only_source_, i, words)) return false;
    pass_on(i, words[0]);
    return true;
  }

  GANTRY_HD bool take_word(std::int32_t i) {
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint32_t owners = 0;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        if (p < group_.size && p != group_.rank && is_in(p, i)) owners |= std::uint32_t{1} << p;
      }
      std::uint64_t words[Batch];
      if (!link_.receive(1, owners, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (first + k < group_.size && has(owners, first + k)) store(first + k, i, words[k]);
      }
    }
    return true;
  }

  Block& block_;
  const PacketRelay& plan_;
  const Group& group_;
  PacketLink<Block, Batch> link_;
  std::int32_t first_ = 0;  // word of each part that this block has
  std::int32_t count_ = 0;
  int idle_ = -1;         // the rank that owns nothing, if there is one
  int only_source_ = -1;  // if there is only one
};

template <class T, int Batch, class Block>
GANTRY_HD void relay_packets(Block& block, const PacketRelay& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  PacketRelayShare<T, Batch, Block> share(block, plan, sequence);
  share.push();
  share.link().announce();
  // Who takes what was made of everyone's offers has heard of everyone.
  const bool hears_all = plan.bytes > 0 && plan.sources == plan.takers;
  if ((hears_all || share.link().await_announced()) && share.make_part()) share.take();
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
