// The two-shot by LL128: data and flag travel together, without staging and barrier.
#pragma once

#include "collectives/algorithms/ll_primitives.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

// One block's part of a two-shot (Note [Two-shot]) by LL128 (Note [LL and LL128]). Senders send one
// slice to each reducer, in the rows of the first shot. The reducer sends its result to all
// receivers, in the rows of the second shot. (MSCCL++ has an all_reduce of this shape, by LL.)
template <class T, int Batch, class Block>
class Ll128TwoShotTask {
 public:
  using Proto = Ll128<Block>;
  static constexpr int kHeld = Proto::kHeld;

  GANTRY_HD Ll128TwoShotTask(Block& block, const Ll128TwoShot& plan, std::uint32_t epoch)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        primitives_(block, plan.group, plan.call, plan.digest, epoch) {
    // A block has a run of every slice, so that it needs only blocks of its own number.
    const std::int32_t run = (plan.slice_lines + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(plan.slice_lines, first_, run));
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (!has(plan.reducers, p)) idle_ = p;
      if (plan.senders == std::uint32_t{1} << p) only_sender_ = p;
    }
  }

  GANTRY_HD LlPrimitives<Proto, Batch, Block>& primitives() { return primitives_; }

  GANTRY_HD void send_slices() {
    if (!has(plan_.senders, group_.rank)) return;
    Proto::for_each(block_, count_, [&](std::int64_t at) {
      if (!Proto::is_there(at, count_)) return;
      const std::int32_t i = first_ + static_cast<std::int32_t>(at);
      GANTRY_ROLLED
      for (int first = 1; first < group_.size; first += Batch) {
        std::uint32_t sent = 0;  // of this batch, one bit each
        std::uint64_t words[Batch][kHeld];
        for (int k = 0; k < Batch; ++k) {
          const int reducer = reducer_at(first + k);
          if (first + k >= group_.size || !is_in(reducer, i)) continue;
          load(reducer, i, words[k]);
          sent |= 1u << k;
        }
        for (int k = 0; k < Batch; ++k) {
          if (has(sent, k)) primitives_.send(reducer_at(first + k), 0, i, words[k]);
        }
      }
    });
  }

  // Returns false, with the fault reported, if the operation must end.
  GANTRY_HD bool reduce_slice() {
    if (!has(plan_.reducers, group_.rank)) return true;
    bool complete = true;
    if constexpr (kReduces<T>) {
      kernels::with_nary_functor<T>(plan_.how.op, [&](auto functor) {
        using F = typename decltype(functor)::type;
        if constexpr (F::kIsDefined) {
          Proto::for_each(block_, count_,
                          [&](std::int64_t at) { complete = complete && reduce_line<F>(at); });
        }
      });
    } else {
      Proto::for_each(block_, count_,
                      [&](std::int64_t at) { complete = complete && forward_line(at); });
    }
    return complete;
  }

  GANTRY_HD void receive_slices() {
    if (!has(plan_.receivers, group_.rank)) return;
    bool complete = true;
    Proto::for_each(block_, count_,
                    [&](std::int64_t at) { complete = complete && receive_line(at); });
  }

 private:
  // Slices are numbered over the reducers.
  GANTRY_HD int reducer_index(int rank) const {
    return idle_ >= 0 && rank > idle_ ? rank - 1 : rank;
  }
  GANTRY_HD std::int32_t line_of(int reducer, std::int32_t i) const {
    return reducer_index(reducer) * plan_.slice_lines + i;
  }
  GANTRY_HD bool is_in(int reducer, std::int32_t i) const {
    return has(plan_.reducers, reducer) && line_of(reducer, i) * kLl128PayloadBytes < plan_.bytes;
  }
  GANTRY_HD void load(int reducer, std::int32_t i, std::uint64_t (&words)[kHeld]) const {
    load_unit<Proto>(block_, plan_.in, line_of(reducer, i), plan_.bytes, words);
  }
  GANTRY_HD void store(int reducer, std::int32_t i, const std::uint64_t (&words)[kHeld]) const {
    store_unit<Proto>(block_, plan_.out, line_of(reducer, i), plan_.bytes, words);
  }

  // Ranks begin with different reducers, so that no link serves all at once.
  GANTRY_HD int reducer_at(int turn) const {
    const int reducer = group_.rank + turn;
    return reducer < group_.size ? reducer : reducer - group_.size;
  }

  GANTRY_HD void send_result(std::int32_t i, const std::uint64_t (&words)[kHeld]) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (p != group_.rank && has(plan_.receivers, p)) {
        primitives_.send(p, 1, i, words);
      }
    }
    if (has(plan_.receivers, group_.rank)) store(group_.rank, i, words);
  }

  // True if this rank reduces line `at` of the block; `i` is its number in the slice.
  GANTRY_HD bool reduces(std::int64_t at, std::int32_t i) const {
    return Proto::is_there(at, count_) && is_in(group_.rank, i);
  }

  template <class F>
  GANTRY_HD bool reduce_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    const bool is_mine = reduces(at, i);
    std::uint64_t own[kHeld] = {};
    if (is_mine) load(group_.rank, i, own);
    const std::uint32_t peers = plan_.senders & ~(std::uint32_t{1} << group_.rank);
    WordReducer<F, kHeld, Block> reduced(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!primitives_.receive(0, is_mine ? peers : 0, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (!is_mine || first + k >= group_.size) continue;
        const bool is_own = first + k == group_.rank;
        for (int h = 0; h < kHeld; ++h) words[k][h] = is_own ? own[h] : words[k][h];
        reduced.add(words[k], first + k == 0);
      }
    }
    std::uint64_t result[kHeld];
    reduced.finish(result);
    if (is_mine) send_result(i, result);
    return true;
  }

  GANTRY_HD bool forward_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    const bool is_mine = reduces(at, i);
    std::uint64_t words[Batch][kHeld];
    if (!primitives_.receive(0, is_mine ? plan_.senders : 0, only_sender_, i, words)) return false;
    if (is_mine) send_result(i, words[0]);
    return true;
  }

  GANTRY_HD bool receive_line(std::int64_t at) {
    const std::int32_t i = first_ + static_cast<std::int32_t>(at);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint32_t reducers = 0;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        const bool is_another = p < group_.size && p != group_.rank;
        if (is_another && Proto::is_there(at, count_) && is_in(p, i))
          reducers |= std::uint32_t{1} << p;
      }
      std::uint64_t words[Batch][kHeld];
      if (!primitives_.receive(1, reducers, first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (first + k < group_.size && has(reducers, first + k)) store(first + k, i, words[k]);
      }
    }
    return true;
  }

  Block& block_;
  const Ll128TwoShot& plan_;
  const Group& group_;
  LlPrimitives<Proto, Batch, Block> primitives_;
  std::int32_t first_ = 0;  // first line of this block in each slice
  std::int32_t count_ = 0;
  int idle_ = -1;         // the rank that is no reducer, if there is one
  int only_sender_ = -1;  // if there is only one
};

template <class T, int Batch, class Block>
GANTRY_HD void ll128_two_shot(Block& block, const Ll128TwoShot& plan) {
  std::uint32_t epoch = 0;
  if (!begin(block, plan.group, plan.call, epoch)) return;
  Ll128TwoShotTask<T, Batch, Block> task(block, plan, epoch);
  task.send_slices();
  task.primitives().signal_entry();
  // A result that is reduced from all ranks' slices implies that all ranks entered.
  const bool data_implies_entries = plan.bytes > 0 && plan.senders == plan.receivers;
  if ((data_implies_entries || task.primitives().wait_all_entries()) && task.reduce_slice())
    task.receive_slices();
  end(block, plan.group, plan.call, epoch);
}

}  // namespace gantry::protocol
