// The one-shot by LL or LL128: data and flag travel together, without staging and barrier.
#pragma once

#include "collectives/algorithms/ll_primitives.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

// One block's part of the operation.
template <class T, class Proto, int Batch, class Block>
class LlOneShotTask {
 public:
  static constexpr int kHeld = Proto::kHeld;

  GANTRY_HD LlOneShotTask(Block& block, const LlOneShot& plan, std::uint32_t epoch)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        primitives_(block, plan.group, plan.call, plan.digest, epoch) {
    // Neighbouring blocks have neighbouring runs, so that stores of a run travel together.
    constexpr std::int32_t kUnitBytes = Proto::kUnitWords * 8;
    const std::int32_t units = (plan.bytes + kUnitBytes - 1) / kUnitBytes;
    const std::int32_t run = (units + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(units, first_, run));
  }

  GANTRY_HD LlPrimitives<Proto, Batch, Block>& primitives() { return primitives_; }

  GANTRY_HD void send_slices() {
    if (plan_.send_to == 0) return;
    Proto::for_each(block_, count_, [&](std::int64_t at) {
      if (!Proto::is_there(at, count_)) return;
      const auto i = first_ + static_cast<std::int32_t>(at);
      std::uint64_t words[kHeld] = {};
      if (plan_.send_stride == 0) load(plan_.in, i, words);
      GANTRY_ROLLED
      for (int p = next(group_.rank); p != group_.rank; p = next(p)) {
        if (!has(plan_.send_to, p)) continue;
        if (plan_.send_stride != 0) load(slice_for(p), i, words);
        primitives_.send(p, 0, i, words);
      }
    });
  }

  // True if received units imply that all peers entered with this call, before a result is written.
  // Elements that are only moved are written batch by batch.
  GANTRY_HD bool data_implies_entries() const {
    const bool is_one_result = kReduces<T> || group_.size <= Batch;
    return is_one_result && plan_.bytes > 0 && plan_.receive_from == all_ranks(group_.size);
  }

  // Threads that give up report the fault.
  GANTRY_HD void receive_slices() {
    if (plan_.receive_from == 0) return;
    bool complete = true;
    if constexpr (kReduces<T>) {
      kernels::with_nary_functor<T>(plan_.how.op, [&](auto functor) {
        using F = typename decltype(functor)::type;
        if constexpr (F::kIsDefined) {
          Proto::for_each(block_, count_,
                          [&](std::int64_t at) { complete = complete && reduce_unit<F>(at); });
        }
      });
    } else {
      Proto::for_each(block_, count_,
                      [&](std::int64_t at) { complete = complete && copy_unit(at); });
    }
  }

 private:
  GANTRY_HD int next(int rank) const { return rank + 1 == group_.size ? 0 : rank + 1; }
  GANTRY_HD const std::byte* slice_for(int p) const {
    return plan_.in + std::int64_t{p} * plan_.send_stride;
  }
  GANTRY_HD void load(const std::byte* data, std::int32_t i, std::uint64_t (&words)[kHeld]) const {
    load_unit<Proto>(block_, data, i, plan_.bytes, words);
  }

  // Receives unit i of ranks first … first + Batch - 1, where these exist and send one.
  GANTRY_HD bool receive(int first, std::int32_t i, bool is_there,
                         std::uint64_t (&words)[Batch][kHeld]) {
    // This rank's own words are loaded while the others are in flight.
    std::uint64_t own[kHeld] = {};
    if (is_there && has(plan_.receive_from, group_.rank)) load(slice_for(group_.rank), i, own);
    const std::uint32_t peers = plan_.receive_from & ~(std::uint32_t{1} << group_.rank);
    const bool complete = primitives_.receive(0, is_there ? peers : 0, first, i, words);
    for (int k = 0; k < Batch; ++k) {
      if (first + k != group_.rank) continue;
      for (int h = 0; h < kHeld; ++h) words[k][h] = own[h];
    }
    return complete;
  }

  GANTRY_HD bool copy_unit(std::int64_t at) {
    const auto i = first_ + static_cast<std::int32_t>(at);
    const bool is_there = Proto::is_there(at, count_);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!receive(first, i, is_there, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        if (!is_there || p >= group_.size || !has(plan_.receive_from, p)) continue;
        store_unit<Proto>(block_, plan_.out + std::int64_t{p} * plan_.receive_stride, i,
                          plan_.bytes, words[k]);
      }
    }
    return true;
  }

  template <class F>
  GANTRY_HD bool reduce_unit(std::int64_t at) {
    const auto i = first_ + static_cast<std::int32_t>(at);
    const bool is_there = Proto::is_there(at, count_);
    WordReducer<F, kHeld, Block> reduced(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!receive(first, i, is_there, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (is_there && first + k < group_.size) reduced.add(words[k], first + k == 0);
      }
    }
    std::uint64_t result[kHeld];
    reduced.finish(result);
    if (is_there) store_unit<Proto>(block_, plan_.out, i, plan_.bytes, result);
    return true;
  }

  Block& block_;
  const LlOneShot& plan_;
  const Group& group_;
  LlPrimitives<Proto, Batch, Block> primitives_;
  std::int32_t first_ = 0;  // first unit of this block
  std::int32_t count_ = 0;
};

template <class T, template <class> class Proto, int Batch, class Block>
GANTRY_HD void ll_one_shot(Block& block, const LlOneShot& plan) {
  std::uint32_t epoch = 0;
  if (!begin(block, plan.group, plan.call, epoch)) return;
  LlOneShotTask<T, Proto<Block>, Batch, Block> task(block, plan, epoch);
  task.send_slices();
  task.primitives().signal_entry();
  // Where units do not imply it, the entries show that all ranks make this call.
  if (task.data_implies_entries() || task.primitives().wait_all_entries()) task.receive_slices();
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
