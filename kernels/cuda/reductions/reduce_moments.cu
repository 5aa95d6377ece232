#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"
#include "kernels/impl/moments.inl"
#include "kernels/impl/variance.inl"

namespace gantry::kernels::cuda {

namespace {

// Not inlined, as said in Note [Small repetitions].
__device__ __noinline__ double scaled_element(const ScaledVariance& variance, std::int64_t k) {
  return variance.element(k);
}

// The tree over the lanes of Note [Repeated variances]: of the elements, or with `center` of their
// squared distances from it. Ends early if a lane is not finite.
__device__ __noinline__ double sum_of_lanes(const ScaledVariance& variance, std::int64_t length,
                                            const double* center) {
  constexpr int kBits = 7;
  static_assert(1 << kBits == kVarianceLanes);
  double levels[kBits];  // sums of 2^level lanes
  double sum = 0;
  GANTRY_ROLLED
  for (int i = 0; i < kVarianceLanes; ++i) {
    sum = 0;
    GANTRY_ROLLED
    for (std::int64_t k = reversed(i, kBits); k < length; k += kVarianceLanes) {
      const double element = scaled_element(variance, k);
      const double distance = center != nullptr ? element - *center : element;
      sum += center != nullptr ? distance * distance : element;
    }
    if (!is_finite(sum)) return sum;
    int level = 0;
    GANTRY_ROLLED
    for (; (i >> level & 1) != 0; ++level) sum = levels[level] + sum;
    if (level < kBits) levels[level] = sum;
  }
  return sum;
}

// Writes the results of `output` as repeat_variances() does, one thread alone.
template <class Acc>
__device__ __noinline__ void write_repeated(const ReducePlan& plan, std::int64_t output, Acc spread,
                                            Acc mean, bool repeats_spread, bool repeats_mean) {
  const ScaledVariance variance(plan, output);
  const double sum = sum_of_lanes(variance, plan.length, nullptr);
  double new_spread = static_cast<double>(spread);
  double new_mean = static_cast<double>(mean);
  if (is_finite(sum)) {
    const double center = variance.mean(sum);
    const double squares = sum_of_lanes(variance, plan.length, &center);
    if (repeats_spread) new_spread = variance.result(squares);
    if (repeats_mean) new_mean = variance.unscaled(center);
  }
  const std::int64_t at = plan.kept_out.offset(output);
  store_reduced(plan.out, at, plan.out_dtype, new_spread, 1);
  if (plan.second_out != nullptr) store_reduced(plan.second_out, at, plan.out_dtype, new_mean, 1);
}

// True if `value` is finite as an element of `dtype`.
template <class Acc>
__device__ bool is_finite_as(DType dtype, Acc value) {
  if (dtype == DType::f16) return is_finite(from_accumulator<float16>(value));
  if (dtype == DType::bf16) return is_finite(from_accumulator<bfloat16>(value));
  return is_finite(value);
}

// Moments whose results of one chunk are repeated where they are written, without another launch.
// Several chunks are too much for one thread.
//
// Branches avoid divisions, since the threads of a warp mostly take the same: most parts have
// equally many elements, or none. The host's vector code has no branches.
template <class Acc>
struct RepeatedMoments : MomentsReducer<Acc> {
  using Base = MomentsReducer<Acc>;
  using typename Base::Accumulator;
  using typename Base::State;

  RepeatedMoments() = default;
  __device__ __host__ explicit RepeatedMoments(const ReducePlan&) {}

  __device__ static State close(const Accumulator& sums, int count, std::int64_t) {
    if (count <= 1) return Base::closed(sums, sums.distances, count);
    return Base::closed(sums, sums.distances / static_cast<Acc>(count), count);
  }
  __device__ static State combine(const State& a, const State& b) {
    if (a.count == b.count) return Base::combine_equal(a, b);
    if (b.count == 0) return a;
    return Base::combine(a, b);
  }
  // The same of states of m and n elements.
  template <int m, int n>
  __device__ static State combine_sized(const State& a, const State& b) {
    constexpr Acc kShare = static_cast<Acc>(n) / static_cast<Acc>(m + n);
    constexpr Acc kProduct = static_cast<Acc>(m) * kShare;
    const Acc distance = b.mean - a.mean;
    return {a.mean + distance * kShare, a.squares + b.squares + distance * distance * kProduct,
            a.sum + b.sum, static_cast<Acc>(m + n)};
  }

  // The results of a state of one chunk. False if one of them is repeated.
  __device__ static bool are_final(const ReducePlan& plan, const State& state, Acc& spread,
                                   Acc& mean) {
    // Division by 0 is slow, and all outputs have it: the result is NaN or infinity.
    spread = plan.divisor == 0 ? state.squares * Acc(INFINITY) : Base::spread(plan, state);
    mean = plan.second_out != nullptr ? state.sum / static_cast<Acc>(plan.total_length) : spread;
    return !repeats_spread(plan, spread) && !repeats_mean(plan, mean);
  }

  __device__ static void write(const ReducePlan& plan, std::int64_t output, const State& state) {
    Acc spread;
    Acc mean;
    if (plan.chunks == 1 && !are_final(plan, state, spread, mean)) {
      write_repeated(plan, output, spread, mean, repeats_spread(plan, spread),
                     repeats_mean(plan, mean));
      return;
    }
    Base::write(plan, output, state);
  }

 private:
  // One element has no spread with a divisor of 0.
  __device__ static bool repeats_spread(const ReducePlan& plan, Acc spread) {
    const bool has_spread = plan.total_length > 1 || plan.divisor != 0;
    return has_spread && !is_finite_as(plan.out_dtype, spread);
  }
  __device__ static bool repeats_mean(const ReducePlan& plan, Acc mean) {
    return plan.second_out != nullptr && !is_finite_as(plan.out_dtype, mean);
  }
};

// Note [Moments of few rows]
// Reductions of few rows of many columns to states of several numbers on the GPU: one thread has
// all elements of its outputs.
//
// Work on states takes longer than reads. A thread has a subtree of the tree over its rows at a
// time. The code of a subtree has a constant number of rows: the shares of its parts, which are
// quotients of numbers of elements, are constants, too.

// One thread reduces V outputs of at most kAccumulators rows. The rows of the next subtree are
// under way while it combines those of one. bits as in reduce_in_thread(), kStep as in
// reduce_few_rows().
template <class In, class Acc, class R, int V, int kStep>
__global__ void __launch_bounds__(kThreads, sizeof(In) * V <= 4 ? 3 : 2)
    reduce_few_states(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  static_assert(kStep == 1 || kStep == kThreads);
  using Vector = StoredPack<In, V>;
  constexpr int kColumns = kStep == 1 ? 1 : V;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  const std::int64_t step = stride << bits;
  const auto rows_from = [&](int from) { return (count - from + (1 << bits) - 1) >> bits; };
  for (std::int64_t pack = first_index();; pack += index_step()) {
    const std::int64_t first =
        kStep == 1 ? pack * V : pack / kThreads * (V * kThreads) + threadIdx.x;
    if (first >= plan.outputs) return;
    const In* columns[kColumns];
#pragma unroll
    for (int v = 0; v < kColumns; ++v) {
      // Behind the end the first output is reduced again, and not written.
      const std::int64_t output = first + v * kStep < plan.outputs ? first + v * kStep : first;
      columns[v] = static_cast<const In*>(plan.in) + near_offset(plan.kept, output);
    }
    Vector next[kSubtree] = {};
    const auto fetch = [&](int from, int rows) {
#pragma unroll
      for (int v = 0; v < kColumns; ++v) {
        const In* at = columns[v] + from * stride;
#pragma unroll
        for (int i = 0; i < kSubtree; ++i, at += step) {
          if (i >= rows) continue;
          if constexpr (kStep == 1) {
            next[i] = *reinterpret_cast<const Vector*>(at);
          } else {
            next[i].values[v] = *at;
          }
        }
      }
    };
    int rows = rows_from(0);
    fetch(0, rows);
    Acc levels[kTreeLevels<kSubtree>][V];
    Acc results[V];
#pragma unroll 1
    for (int subtree = 0; subtree >> bits == 0; ++subtree) {
      Vector own[kSubtree];
#pragma unroll
      for (int i = 0; i < kSubtree; ++i) own[i] = next[i];
      const int own_rows = rows;
      if ((subtree + 1) >> bits == 0) {
        const int from = reversed(subtree + 1, bits);
        rows = rows_from(from);
        fetch(from, rows);
      }
      combine_first_rows<kSubtree>(
          reducer, own_rows, [&](int i, int v) { return reducer.only(own[i].values[v]); }, results);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const Acc last = results[v];
        results[v] = push_subtree(subtree, v, levels, last, [&](const Acc& a, const Acc& b) {
          return reducer.combine(a, b);
        });
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) results[v] = reducer.finish(results[v]);
    write_outputs<R, In, kStep>(plan, first, results);
  }
}

// Reduces few rows of so many columns that they fill a GPU with a thread for each pack. Returns
// false for others.
template <class In, class Acc, class R>
bool launch_few_states(void* stream, const ReducePlan& plan) {
  if (!plan.is_column_wise() || plan.length < 2 || plan.length > kAccumulators ||
      plan.outputs < kManyColumns) {
    return false;
  }
  constexpr int V = kFewPack<In, R>;
  const auto run = [&](auto kernel) {
    launch("reduce_few_states", stream, blocks_for((plan.outputs + V - 1) / V), kThreads, 0, kernel,
           plan, R(plan), subtree_bits(kSubtree, plan.length, kAccumulators));
    return true;
  };
  if (V == 1 || has_packs<In, V>(plan)) return run(reduce_few_states<In, Acc, R, V, 1>);
  return run(reduce_few_states < In, Acc, R, V, V == 1 ? 1 : kThreads >);
}

static_assert(kHasMoments<StateReducer<RepeatedMoments<float>>>);
static_assert(kHasSizedStates<StateReducer<RepeatedMoments<float>>>);

}  // namespace

void reduce_moments(void* stream, const ReducePlan& plan) {
  dispatch_floating("reduce", plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using R = StateReducer<RepeatedMoments<AccumulatorType<In>>>;
    if (launch_few_states<In, typename R::State, R>(stream, plan)) return;
    reduce_with<In, typename R::State, R>(stream, plan);
  });
}

}  // namespace gantry::kernels::cuda
