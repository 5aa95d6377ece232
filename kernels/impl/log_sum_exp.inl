// The logarithm of a sum of exponentials in one pass, shared by the host and the GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/impl/reduce.inl"
#include "kernels/math/math.hpp"

namespace gantry::kernels {

// The sum of exp(x - largest) over some elements x, of which `largest` is the largest.
template <class Acc>
struct ExponentialSum {
  Acc largest;
  Acc sum;  // 0 for no element
};

// logsumexp, with accumulators of type Acc (float or double). Elements that equal the largest count
// as exp(0), also infinite ones. A NaN makes the sum NaN.
template <class Acc>
class LogSumExpReducer {
 public:
  using Accumulator = ExponentialSum<Acc>;
  using State = ExponentialSum<Acc>;
  static constexpr bool kIsRepeated = false;

  LogSumExpReducer() = default;
  GANTRY_HD explicit LogSumExpReducer(const ReducePlan&) {}

  GANTRY_HD static Accumulator start() { return neutral(); }
  // The first element of an accumulator needs no exponential.
  template <class In>
  GANTRY_HD static void take(Accumulator& into, In element, int k) {
    const State one{static_cast<Acc>(element), 1};
    into = k < kReduceAccumulators ? one : combine(into, one);
  }
  GANTRY_HD static State close(const Accumulator& sum, int, std::int64_t) { return sum; }

  GANTRY_HD static State neutral() { return {static_cast<Acc>(-HUGE_VAL), 0}; }
  GANTRY_HD static State combine(const State& a, const State& b) {
    const bool is_larger = b.largest > a.largest;
    const Acc largest = is_larger ? b.largest : a.largest;
    const Acc other = is_larger ? a.largest : b.largest;
    // The difference of equal infinities is NaN, but their factor is 1.
    const Acc factor = math::exp(other == largest ? Acc(0) : other - largest);
    const Acc high = is_larger ? b.sum : a.sum;
    const Acc low = is_larger ? a.sum : b.sum;
    return {largest, high + low * factor};
  }

  GANTRY_HD static void write(const ReducePlan& plan, std::int64_t output, const State& state) {
    store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype,
                  math::log(state.sum) + state.largest, 1);
  }
};

}  // namespace gantry::kernels
