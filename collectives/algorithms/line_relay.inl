// A relay in lines, which carry data and flag together: two flights, no staging, no barrier.
#pragma once

#include "collectives/algorithms/wire_link.inl"

namespace gantry::protocol {

// As Note [Relay], in lines of Note [Wires]: sources send one part of the array to each owner, in
// the rows of the first phase, who sends what it makes of it to all takers, in those of the second.
// (MSCCL++ has an all_reduce of this shape, in packets.)
template <class T, int Batch, class Block>
class LineRelayShare {
 public:
  using Wire = Lines<Block>;
  static constexpr int kHeld = Wire::kHeld;

  GANTRY_HD LineRelayShare(Block& block, const LineRelay& plan, std::uint32_t sequence)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        link_(block, plan.group, plan.call, plan.digest, sequence) {
    // Blocks have a run of every part, so that block b needs blocks b only.
    const std::int32_t run = (plan.part_lines + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(plan.part_lines, first_, run));
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.owners, p)) idle_ = p;
      if (plan.sources == std::uint32_t{1} << p) only_source_ = p;
    }
  }

  GANTRY_HD WireLink<Wire, Batch, Block>& link() { return link_; }

  GANTRY_HD void push() {
    if (!has(plan_.sources, group_.rank)) return;
    Wire::for_each(block_, count_, [&](std::int64_t at) {
      if (!Wire::is_there(at, count_)) return;
      const std::int32_t i = first_ + static_cast<std::int32_t>(at);
      GANTRY_ROLLED
      for (int first = 1; first < group_.size; first += Batch) {
        std::uint32_t sent = 0;  // of this batch, one bit each
        std::uint64_t words[Batch][kHeld];
        for (int k = 0; k < Batch; ++k) {
          const int owner = owner_at(first + k);
          if (first + k >= group_.size || !is_in(owner, i)) continue;
          load(owner, i, words[k]);
          sent |= 1u << k;
        }
        for (int k = 0; k < Batch; ++k) {
          if (has(sent, k)) link_.send(owner_at(first + k), 0, i, words[k]);
        }
      }
    });
  }

  // False if this thread waited in vain, and said why.
  GANTRY_HD bool make_part() {
    if (!has(plan_.owners, group_.rank)) return true;
    bool complete = true;
    if constexpr (kCombines<T>) {
      kernels::with_nary_functor<T>(plan_.how.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
          Wire::for_each(block_, count_,
                         [&](std::int64_t at) { complete = complete && fold_line<F>(at); });
        }
      });
    } else {
      Wire::for_each(block_, count_,
                     [&](std::int64_t at) { complete = complete && forward_line(at); });
    }
    return complete;
  }

  GANTRY_HD void take() {
    if (!has(plan_.takers, group_.rank)) return;
    bool complete = true;
    Wire::for_each(block_, count_, [&](std::int64_t at) { complete = complete && take_line(at); });
  }

 private:
  // Parts are numbered over the owners.
  GANTRY_HD int owner_index(int rank) const { return idle_ >= 0 && rank > idle_ ? rank - 1 : rank; }
  GANTRY_HD std::int32_t line_of(int owner, std::int32_t i) const {
    return owner_index(owner) * plan_.part_lines + i;
  }
  GANTRY_HD bool is_in(int owner, std::int32_t i) const {
    return has(plan_.owners, owner) && line_of(owner, i) * kLinePayloadBytes < plan_.bytes;
  }
  GANTRY_HD void load(int owner, std::int32_t i, std::uint64_t (&words)[kHeld]) const {
    load_unit<Wire>(block_, plan_.in, line_of(owner, i), plan_.bytes, words);
  }
  GANTRY_HD void store(int owner, std::int32_t i, const std::uint64_t (&words)[kHeld]) const {
    store_unit<Wire>(block_, plan_.out, line_of(owner, i), plan_.bytes, words);
  }

  // Ranks begin with different owners, so that no link serves all at once.
  GANTRY_HD int owner_at(int turn) const {
    const int owner = group_.rank + turn;
    return owner < group_.size ? owner : owner - group_.size;
  }

  GANTRY_HD void pass_on(std::int32_t i, const std::uint64_t (&words)[kHeld]) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (p != group_.rank && has(plan_.takers, p)) {
        link_.send(p, 1, i, words);
      }
    }
    if (has(plan_.takers, group_.rank)) store(group_.rank, i, words);
  }

  // Whether this rank makes something of line `at` of the block's; `i` is its number in the part.
  GANTRY_HD bool makes(std::int64_t at, std::int32_t i) const {
    return Wire::is_there(at, count_) && is_in(group_.rank, i);
  }

  template <class F>
  GANTRY_HD bool fold_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    const bool is_mine = makes(at, i);
    std::uint64_t own[kHeld] = {};
    if (is_mine) load(group_.rank, i, own);
    const std::uint32_t peers = plan_.sources & ~(std::uint32_t{1} << group_.rank);
    WordFold<F, kHeld, Block> folded(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!link_.receive(0, is_mine ? peers : 0, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (!is_mine || first + k >= group_.size) continue;
        const bool is_own = first + k == group_.rank;
        for (int h = 0; h < kHeld; ++h) words[k][h] = is_own ? own[h] : words[k][h];
        folded.add(words[k], first + k == 0);
      }
    }
    std::uint64_t result[kHeld];
    folded.finish(result);
    if (is_mine) pass_on(i, result);
    return true;
  }

  GANTRY_HD bool forward_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    const bool is_mine = makes(at, i);
    std::uint64_t words[Batch][kHeld];
    if (!link_.receive(0, is_mine ? plan_.sources : 0, only_source_, i, words)) return false;
    if (is_mine) pass_on(i, words[0]);
    return true;
  }

  GANTRY_HD bool take_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint32_t owners = 0;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        const bool is_another = p < group_.size && p != group_.rank;
        if (is_another && Wire::is_there(at, count_) && is_in(p, i))
          owners |= std::uint32_t{1} << p;
      }
      std::uint64_t words[Batch][kHeld];
      if (!link_.receive(1, owners, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (first + k < group_.size && has(owners, first + k)) store(first + k, i, words[k]);
      }
    }
    return true;
  }

  Block& block_;
  const LineRelay& plan_;
  const Group& group_;
  WireLink<Wire, Batch, Block> link_;
  std::int32_t first_ = 0;  // line of each part that this block has
  std::int32_t count_ = 0;
  int idle_ = -1;         // the rank that owns nothing, if there is one
  int only_source_ = -1;  // if there is only one
};

template <class T, int Batch, class Block>
GANTRY_HD void relay_lines(Block& block, const LineRelay& plan) {
  std::uint32_t sequence = 0;
  if (!begin(block, plan.group, plan.call, sequence)) return;
  LineRelayShare<T, Batch, Block> share(block, plan, sequence);
  share.push();
  share.link().announce();
  // Who takes what was made of everyone's offers has heard of everyone.
  const bool hears_all = plan.bytes > 0 && plan.sources == plan.takers;
  if ((hears_all || share.link().await_announced()) && share.make_part()) share.take();
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
