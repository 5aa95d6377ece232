// One-shots and two-shots by LL or LL128: data and flag travel together, without staging and
// barrier.
#pragma once

#include "collectives/algorithms/ll_primitives.inl"
#include "core/code_size.hpp"

namespace gantry::protocol {

// One block's part of a flagged operation (Note [LL and LL128]).
//
// In a one-shot every rank sends a slice to each rank of `send_to`. It copies the slices that it
// receives, or reduces them. In a two-shot (Note [Two-shot]) the reducer of a slice sends its
// result to all receivers, in the rows of the second shot. (MSCCL++ has an all_reduce of this
// shape, by LL.)
template <class T, class Proto, int Batch, int Shots, class Block>
class FlaggedTask {
 public:
  static constexpr int kHeld = Proto::kHeld;
  static constexpr std::int32_t kUnitBytes = Proto::kUnitWords * 8;

  GANTRY_HD FlaggedTask(Block& block, const FlaggedPlan& plan, std::uint32_t epoch)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        primitives_(block, plan.group, plan.call, plan.digest, epoch) {
    // Neighbouring blocks have neighbouring runs, so that stores of a run travel together. A block
    // has a run of every slice, so that it needs only blocks of its own number.
    const std::int32_t units = (plan.bytes + kUnitBytes - 1) / kUnitBytes;
    const std::int32_t run = (units + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(units, first_, run));
    if constexpr (Shots == 2) {
      GANTRY_ROLLED
      for (int p = 0; p < group_.size; ++p) {
        if (!has(plan.reducers, p)) idle_ = p;
      }
    }
  }

  GANTRY_HD LlPrimitives<Proto, Batch, Block>& primitives() { return primitives_; }

  GANTRY_HD void send_slices() {
    if (plan_.send_to == 0) return;
    each_unit([&](std::int32_t i, bool is_there) {
      if (!is_there) return true;
      if constexpr (Shots == 1) {
        send_unit(i);
      } else {
        send_unit_to_reducers(i);
      }
      return true;
    });
  }

  // True if received units imply that all peers entered with this call, before a result is written.
  // Elements that are only moved are written batch by batch.
  GANTRY_HD bool data_implies_entries() const {
    const std::uint32_t all = all_ranks(group_.size);
    if constexpr (Shots == 2) {
      return plan_.bytes > 0 && !plan_.how.copies && plan_.receivers == all;
    } else {
      const bool is_one_result = kReduces<T> || group_.size <= Batch;
      return is_one_result && plan_.bytes > 0 && plan_.receive_from == all;
    }
  }

  // Receives the slices of the first shot. Returns false, with the fault reported, if the thread
  // gave up.
  GANTRY_HD bool receive_slices() {
    if (plan_.receive_from == 0) return true;
    bool complete = true;
    if constexpr (kReduces<T>) {
      kernels::with_nary_functor<T>(plan_.how.op, [&](auto functor) {
        using F = typename decltype(functor)::type;
        if constexpr (F::kIsDefined) {
          complete =
              each_unit([&](std::int32_t i, bool is_there) { return reduce_unit<F>(i, is_there); });
        }
      });
    } else if constexpr (Shots == 1) {
      complete = each_unit([&](std::int32_t i, bool is_there) { return copy_unit(i, is_there); });
    } else {
      complete =
          each_unit([&](std::int32_t i, bool is_there) { return forward_unit(i, is_there); });
    }
    return complete;
  }

  // Receives the results of the second shot.
  GANTRY_HD void receive_results() {
    if (!has(plan_.receivers, group_.rank)) return;
    each_unit([&](std::int32_t i, bool is_there) { return receive_result(i, is_there); });
  }

 private:
  // Calls f(unit, is_there) for this thread's units until it returns false; returns its result.
  template <class F>
  GANTRY_HD bool each_unit(const F& f) {
    bool complete = true;
    Proto::for_each(block_, count_, [&](std::int64_t at) {
      complete = complete && f(first_ + static_cast<std::int32_t>(at), Proto::is_there(at, count_));
    });
    return complete;
  }

  // Ranks begin with different peers, so that no link serves all at once.
  GANTRY_HD int next(int rank) const { return rank + 1 == group_.size ? 0 : rank + 1; }
  GANTRY_HD int peer_at(int turn) const {
    const int p = group_.rank + turn;
    return p < group_.size ? p : p - group_.size;
  }
  GANTRY_HD std::uint32_t own_bit() const { return std::uint32_t{1} << group_.rank; }

  // Slices of a two-shot are numbered over the reducers.
  GANTRY_HD int slice_of(int p) const { return Shots == 2 && idle_ >= 0 && p > idle_ ? p - 1 : p; }
  GANTRY_HD std::int32_t bytes_of(int p) const {
    if constexpr (Shots == 1) return plan_.bytes;
    return static_cast<std::int32_t>(
        clipped(plan_.array_bytes, slice_of(p) * plan_.bytes, plan_.bytes));
  }
  GANTRY_HD bool is_in(int p, std::int32_t i) const { return i * kUnitBytes < bytes_of(p); }
  GANTRY_HD void load(int p, std::int32_t i, std::uint64_t (&words)[kHeld]) const {
    load_unit<Proto>(block_, plan_.in + std::int64_t{slice_of(p)} * plan_.send_stride, i,
                     bytes_of(p), words);
  }
  GANTRY_HD void store(int p, std::int32_t i, const std::uint64_t (&words)[kHeld]) const {
    store_unit<Proto>(block_, plan_.out + std::int64_t{slice_of(p)} * plan_.receive_stride, i,
                      bytes_of(p), words);
  }

  GANTRY_HD void send_unit(std::int32_t i) {
    std::uint64_t words[kHeld] = {};
    if (plan_.send_stride == 0) load(0, i, words);
    GANTRY_ROLLED
    for (int p = next(group_.rank); p != group_.rank; p = next(p)) {
      if (!has(plan_.send_to, p)) continue;
      if (plan_.send_stride != 0) load(p, i, words);
      primitives_.send(p, 0, i, words);
    }
  }

  GANTRY_HD void send_unit_to_reducers(std::int32_t i) {
    GANTRY_ROLLED
    for (int first = 1; first < group_.size; first += Batch) {
      std::uint32_t sent = 0;  // of this batch, one bit each
      std::uint64_t words[Batch][kHeld];
      for (int k = 0; k < Batch; ++k) {
        const int p = peer_at(first + k);
        if (first + k >= group_.size || !has(plan_.send_to, p) || !is_in(p, i)) continue;
        load(p, i, words[k]);
        sent |= 1u << k;
      }
      for (int k = 0; k < Batch; ++k) {
        if (has(sent, k)) primitives_.send(peer_at(first + k), 0, i, words[k]);
      }
    }
  }

  GANTRY_HD void send_result(std::int32_t i, const std::uint64_t (&words)[kHeld]) {
    GANTRY_ROLLED
    for (int p = 0; p < group_.size; ++p) {
      if (p != group_.rank && has(plan_.receivers, p)) primitives_.send(p, 1, i, words);
    }
    if (has(plan_.receivers, group_.rank)) store(group_.rank, i, words);
  }

  // Receives unit i of ranks first … first + Batch - 1, where these exist and send one.
  GANTRY_HD bool receive(int first, std::int32_t i, bool is_there,
                         std::uint64_t (&words)[Batch][kHeld]) {
    // This rank's own words are loaded while the others are in flight.
    std::uint64_t own[kHeld] = {};
    if (is_there && has(plan_.receive_from, group_.rank)) load(group_.rank, i, own);
    const std::uint32_t peers = plan_.receive_from & ~own_bit();
    const bool complete = primitives_.receive(0, is_there ? peers : 0, first, i, words);
    for (int k = 0; k < Batch; ++k) {
      if (first + k != group_.rank) continue;
      for (int h = 0; h < kHeld; ++h) words[k][h] = own[h];
    }
    return complete;
  }

  GANTRY_HD bool copy_unit(std::int32_t i, bool is_there) {
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch][kHeld];
      if (!receive(first, i, is_there, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        if (!is_there || p >= group_.size || !has(plan_.receive_from, p)) continue;
        store(p, i, words[k]);
      }
    }
    return true;
  }

  template <class F>
  GANTRY_HD bool reduce_unit(std::int32_t i, bool is_there) {
    if constexpr (Shots == 2) is_there = is_there && is_in(group_.rank, i);
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
    if (!is_there) return true;
    if constexpr (Shots == 2) {
      send_result(i, result);
    } else {
      store(0, i, result);
    }
    return true;
  }

  // Sends what the only sender sent to all receivers.
  GANTRY_HD bool forward_unit(std::int32_t i, bool is_there) {
    is_there = is_there && is_in(group_.rank, i);
    const int sender = idle_;  // the root reduces nothing
    std::uint64_t words[Batch][kHeld];
    if (!primitives_.receive(0, is_there ? plan_.receive_from : 0, sender, i, words)) return false;
    if (is_there) send_result(i, words[0]);
    return true;
  }

  GANTRY_HD bool receive_result(std::int32_t i, bool is_there) {
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint32_t reducers = 0;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        const bool sends = p < group_.size && p != group_.rank && has(plan_.reducers, p);
        if (sends && is_there && is_in(p, i)) reducers |= std::uint32_t{1} << p;
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
  const FlaggedPlan& plan_;
  const Group& group_;
  LlPrimitives<Proto, Batch, Block> primitives_;
  std::int32_t first_ = 0;  // first unit of this block in each slice
  std::int32_t count_ = 0;
  int idle_ = -1;  // the rank that is no reducer of a two-shot, if there is one
};

template <class T, template <class> class Proto, int Batch, int Shots, class Block>
GANTRY_HD void flagged(Block& block, const FlaggedPlan& plan) {
  Begun begun;
  if (!begin<false>(block, plan.group, plan.call, begun)) return;
  FlaggedTask<T, Proto<Block>, Batch, Shots, Block> task(block, plan, begun.epoch);
  task.send_slices();
  task.primitives().signal_entry();
  // Where units do not imply it, the entries show that all ranks make this call.
  if ((task.data_implies_entries() || task.primitives().wait_all_entries()) &&
      task.receive_slices()) {
    if constexpr (Shots == 2) task.receive_results();
  }
  end(block, plan.group, plan.call, begun.epoch);
  check_begun(block, plan.group, plan.call, begun);
}

}  // namespace gantry::protocol
