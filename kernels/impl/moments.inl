// Variances in one pass, shared by the host and the GPU: Note [Variances].
#pragma once

#include <cstdint>

#include "kernels/impl/reduce.inl"
#include "kernels/math/math.hpp"

namespace gantry::kernels {

// The sums of the elements of one accumulator.
template <class Acc>
struct MomentSums {
  Acc first;      // the first element
  Acc distances;  // from the first element
  Acc squares;    // of the distances
  Acc sum;
};

// The mean of some elements, the sum of their squared distances from it, and their plain sum.
template <class Acc>
struct Moments {
  Acc mean;
  Acc squares;
  Acc sum;
  Acc count;  // 0 for no element
};

// Variance, standard deviation and mean, with accumulators of type Acc (float or double).
template <class Acc>
class MomentsReducer {
 public:
  using Accumulator = MomentSums<Acc>;
  using State = Moments<Acc>;
  static constexpr bool kIsRepeated = false;  // repeat_variances() does

  MomentsReducer() = default;
  GANTRY_HD explicit MomentsReducer(const ReducePlan&) {}

  GANTRY_HD static Accumulator start() { return {0, 0, 0, Acc(-0.0)}; }
  // Takes in element `k` of a chunk.
  template <class In>
  GANTRY_HD static void take(Accumulator& into, In element, int k) {
    const Acc value = static_cast<Acc>(element);
    if (k < kReduceAccumulators) into.first = value;
    const Acc distance = value - into.first;
    into.distances += distance;
    into.squares += distance * distance;
    into.sum += value;
  }
  // The state of an accumulator that holds `count` elements.
  GANTRY_HD static State close(const Accumulator& sums, int count, std::int64_t) {
    return closed(sums, count > 1 ? sums.distances / static_cast<Acc>(count) : sums.distances,
                  count);
  }

  // The state of one element, as close() has it.
  template <class In>
  GANTRY_HD static State only(In element) {
    const Acc value = static_cast<Acc>(element);
    const Acc distance = value - value;  // NaN if the element is infinite
    return {value + distance, distance, value, 1};
  }

  GANTRY_HD static State neutral() { return {0, 0, Acc(-0.0), 0}; }
  // combine() of states of equally many elements, of which there are some.
  GANTRY_HD static State combine_equal(const State& a, const State& b) {
    const Acc distance = b.mean - a.mean;
    return {a.mean + distance * Acc(0.5),
            a.squares + b.squares + distance * distance * (a.count * Acc(0.5)), a.sum + b.sum,
            a.count + b.count};
  }
  // Only `b`, or both, may have no element. No branch, for vector code.
  GANTRY_HD static State combine(const State& a, const State& b) {
    const Acc count = a.count + b.count;
    const Acc distance = b.count > 0 ? b.mean - a.mean : Acc(0);
    // Equal parts, which most are, need no division.
    const Acc share = a.count == b.count ? Acc(0.5) : b.count / count;
    return {a.mean + distance * share,
            a.squares + b.squares + distance * distance * (a.count * share), a.sum + b.sum, count};
  }

  // The variance or deviation.
  GANTRY_HD static Acc spread(const ReducePlan& plan, const State& state) {
    const Acc variance = state.squares / static_cast<Acc>(plan.divisor);
    return plan.op == Reduction::deviation ? math::sqrt(variance) : variance;
  }
  // Writes the results of `output`.
  GANTRY_HD static void write(const ReducePlan& plan, std::int64_t output, const State& state) {
    const std::int64_t at = plan.kept_out.offset(output);
    store_reduced(plan.out, at, plan.out_dtype, spread(plan, state), 1);
    if (plan.second_out != nullptr) {
      store_reduced(plan.second_out, at, plan.out_dtype, state.sum,
                    static_cast<double>(plan.total_length));
    }
  }

 protected:
  // `offset`: of the mean from the first element.
  GANTRY_HD static State closed(const Accumulator& sums, Acc offset, int count) {
    return {sums.first + offset, sums.squares - sums.distances * offset, sums.sum,
            static_cast<Acc>(count)};
  }
};

}  // namespace gantry::kernels
