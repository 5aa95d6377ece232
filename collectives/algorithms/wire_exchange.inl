// An exchange in units that carry data and flag together: no staging, no barrier.
#pragma once

#include "collectives/algorithms/wire_link.inl"

namespace gantry::protocol {

template <class T, class Wire, int Batch, class Block>
class WireShare {
 public:
  static constexpr int kHeld = Wire::kHeld;

  GANTRY_HD WireShare(Block& block, const WireExchange& plan, std::uint32_t sequence)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        link_(block, plan.group, plan.call, plan.digest, sequence) {
    // Neighbouring blocks take neighbouring runs, so that stores of a run travel together.
    constexpr std::int32_t kUnitBytes = Wire::kUnitWords * 8;
    const std::int32_t units = (plan.bytes + kUnitBytes - 1) / kUnitBytes;
    const std::int32_t run = (units + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(units, first_, run));
  }

  GANTRY_HD WireLink<Wire, Batch, Block>& link() { return link_; }

  GANTRY_HD void push() {
    if (plan_.offers == 0) return;
    Wire::for_each(block_, count_, [&](std::int64_t at) {
      if (!Wire::is_there(at, count_)) return;
      const auto i = first_ + static_cast<std::int32_t>(at);
      std::uint64_t words[kHeld] = {};
      if (plan_.offer_stride == 0) load(plan_.in, i, words);
      GANTRY_ROLLED
      for (int p = next(group_.rank); p != group_.rank; p = next(p)) {
        if (!has(plan_.offers, p)) continue;
        if (plan_.offer_stride != 0) load(offered_to(p), i, words);
        link_.send(p, 0, i, words);
      }
    });
  }

  // True if units tell this rank that every peer entered, and of any mismatch before it writes a
  // result. What is only moved it writes batch by batch.
  GANTRY_HD bool hears_all() const {
    const bool is_one_result = kCombines<T> || group_.size <= Batch;
    return is_one_result && plan_.bytes > 0 && plan_.takes == everyone(group_.size);
  }

  // Who waits in vain gives up, and says why.
  GANTRY_HD void take() {
    if (plan_.takes == 0) return;
    bool complete = true;
    if constexpr (kCombines<T>) {
      kernels::with_nary_functor<T>(plan_.how.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
          Wire::for_each(block_, count_,
                         [&](std::int64_t at) { complete = complete && fold_unit<F>(at); });
        }
      });
    } else {
      Wire::for_each(block_, count_,
                     [&](std::int64_t at) { complete = complete && copy_unit(at); });
    }
  }

 private:
  GANTRY_HD int next(int rank) const { return rank + 1 == group_.size ? 0 : rank + 1; }
  GANTRY_HD const std::byte* offered_to(int p) const {
    return plan_.in + std::int64_t{p} * plan_.offer_stride;
  }
  GANTRY_HD void load(const std::byte* data, std::int32_t i, std::uint64_t (&words)[kHeld]) const {
    load_unit<Wire>(block_, data, i, plan_.bytes, words);
  }

  // Unit i of ranks first … first + Batch - 1, as far as they are and offer one.
  GANTRY_HD bool receive(int first, std::int32_t i, bool is_there,
                         std::uint64_t (&words)[Batch][kHeld]) {
    // This rank's own words, while the others are on their way.
    std::uint64_t own[kHeld] = {};
    if (is_there && has(plan_.takes, group_.rank)) load(offered_to(group_.rank), i, own);
    const std::uint32_t peers = plan_.takes & ~(std::uint32_t{1} << group_.rank);
    const bool complete = link_.receive(0, is_there ? peers : 0, first, i, words);
    for (int k = 0; k < Batch; ++k) {
      if (first + k != group_.rank) continue;
      for (int h = 0; h < kHeld; ++h) words[k][h] = own[h];
    }
    return complete;
  }

  GANTRY_HD bool copy_unit(std::int64_t at) {
    const auto i = first_ + static_cast<std::int32_t>(at);
    const bool is_there = Wire::is_there(at, count_);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!receive(first, i, is_there, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        if (!is_there || p >= group_.size || !has(plan_.takes, p)) continue;
        store_unit<Wire>(block_, plan_.out + std::int64_t{p} * plan_.take_stride, i, plan_.bytes,
                         words[k]);
      }
    }
    return true;
  }

  template <class F>
  GANTRY_HD bool fold_unit(std::int64_t at) {
    const auto i = first_ + static_cast<std::int32_t>(at);
    const bool is_there = Wire::is_there(at, count_);
    WordFold<F, kHeld, Block> folded(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!receive(first, i, is_there, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (is_there && first + k < group_.size) folded.add(words[k], first + k == 0);
      }
    }
    std::uint64_t result[kHeld];
    folded.finish(result);
    if (is_there) store_unit<Wire>(block_, plan_.out, i, plan_.bytes, result);
    return true;
  }

  Block& block_;
  const WireExchange& plan_;
  const Group& group_;
  WireLink<Wire, Batch, Block> link_;
  std::int32_t first_ = 0;  // unit of this block
  std::int32_t count_ = 0;
};

template <class T, template <class> class Wire, int Batch, class Block>
GANTRY_HD void exchange_over(Block& block, const WireExchange& plan) {
  std::uint32_t sequence = 0;
  if (!begin(block, plan.group, plan.call, sequence)) return;
  WireShare<T, Wire<Block>, Batch, Block> share(block, plan, sequence);
  share.push();
  share.link().announce();
  // Without units from everyone, the entries say that all are there and call the same.
  if (share.hears_all() || share.link().await_announced()) share.take();
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
