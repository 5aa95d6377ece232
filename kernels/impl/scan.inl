// Arithmetic of scans, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/math/math.hpp"
#include "kernels/reductions/accumulator.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels {

// f32 accumulates in f64, because the rounding errors of a running value add up.
template <class In>
using ScanAccumulator = std::conditional_t<std::is_same_v<In, float>, double, AccumulatorType<In>>;

// The result's element type for elements of type In: i64 for integers and bool, else In.
template <class In>
using ScanOut = std::conditional_t<is_floating_point(dtype_of<In>), In, std::int64_t>;

// True if scans follow Note [Restarted scans].
template <class In, ScanOp kOp>
inline constexpr bool kRestarts = restarts(kOp, dtype_of<In>);
// True if they look at every result and begin again, not only from the tile that fails.
template <class In, ScanOp kOp>
inline constexpr bool kBeginsAgain = kRestarts<In, kOp>&& kOp == ScanOp::product;

// The operation of a scan. combine(neutral(), x) gives the bits of x, so a value of neutral()
// counts as absent in Note [Scan order].
template <class A, ScanOp kOp>
struct ScanStep {
  using Acc = A;

  GANTRY_HD static Acc neutral() {
    if constexpr (kOp == ScanOp::log_sum_exp) return -static_cast<Acc>(INFINITY);
    if constexpr (kOp == ScanOp::product) return Acc(1);
    if constexpr (!std::is_same_v<Acc, std::int64_t>) return Acc(-0.0);
    return Acc(0);
  }
  GANTRY_HD static Acc combine(Acc a, Acc b) {
    if constexpr (kOp == ScanOp::log_sum_exp) {
      return log_add_exp(a, b);
    } else {
      return kOp == ScanOp::product ? wrapping_multiply(a, b) : wrapping_add(a, b);
    }
  }

 private:
  // log(exp(a) + exp(b)), without overflow.
  GANTRY_HD static Acc log_add_exp(Acc a, Acc b) {
    if (a == neutral()) return b;
    if (b == neutral()) return a;
    const Acc high = a > b ? a : b;
    const Acc low = a > b ? b : a;
    if (high == low && high == -neutral()) return high;
    return high + math::log1p(math::exp(low - high));
  }
};

// The value before each group of Note [Scan order], for groups that come one after the other. All
// units have one level: groups of elements, or groups of groups.
template <class Step>
class ScanCarry {
 public:
  using Acc = typename Step::Acc;

  // The value of all units before the next one.
  GANTRY_HD Acc before() const { return before_; }

  // Adds the total of the next unit.
  GANTRY_HD void push(Acc total) {
    std::uint64_t count = ++count_;
    int level = 0;
    running_[0] = (count - 1) % kScanGroup == 0 ? total : Step::combine(running_[0], total);
    for (; count % kScanGroup == 0; ++level) {
      total = running_[level];
      count /= kScanGroup;
      running_[level + 1] =
          (count - 1) % kScanGroup == 0 ? total : Step::combine(running_[level + 1], total);
    }
    // The levels from the highest down; a level whose group has just begun has nothing before.
    int top = 0;
    for (std::uint64_t units = count_; units >= kScanGroup; units /= kScanGroup) ++top;
    before_ = Step::neutral();
    for (; top >= 0; --top) {
      if ((count_ >> (top * kScanGroupBits)) % kScanGroup != 0)
        before_ = Step::combine(before_, running_[top]);
    }
  }

 private:
  std::uint64_t count_ = 0;  // units so far
  Acc before_ = Step::neutral();
  Acc running_[64 / kScanGroupBits] = {};  // of the current group of each level
};

// Scans `length` elements left to right, after the value `running`. The arrays share no memory.
template <class Step, class In>
GANTRY_HD void scan_left_to_right(ScanOut<In>* out, std::int64_t out_stride, const In* in,
                                  std::int64_t in_stride, std::int64_t length,
                                  typename Step::Acc running) {
  constexpr int kBatch = 8;  // loads of a GPU in flight
  In batch[kBatch];
  for (std::int64_t first = 0; first < length; first += kBatch) {
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < length) batch[i] = in[(first + i) * in_stride];
    }
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= length) return;
      running = Step::combine(running, static_cast<typename Step::Acc>(batch[i]));
      out[(first + i) * out_stride] = from_accumulator<ScanOut<In>>(running);
    }
  }
}

}  // namespace gantry::kernels
