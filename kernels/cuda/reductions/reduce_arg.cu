#include "kernels/cuda/reductions/arg_key.cuh"
#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

namespace {

// The largest or smallest element of type T and its first index.
template <class T>
class ArgReducer {
 public:
  // The best element of an accumulator, and its position in the chunk.
  struct Accumulator {
    Key<T> key;
    std::int32_t at;
  };
  // The best of some elements. Index -1: none.
  struct State {
    Key<T> key;
    std::int64_t index;
  };
  static constexpr bool kIsRepeated = false;

  ArgReducer() = default;
  explicit ArgReducer(const ReducePlan& plan) : key_of_{plan.op == Reduction::argmax} {}

  __device__ static Accumulator start() { return {lowest_key<Key<T>>(), -1}; }
  __device__ void take(Accumulator& into, T element, int k) const {
    const Key<T> key = key_of_(element);
    if (k < kReduceAccumulators || precedes(true, key, into.key)) into = {key, k};
  }
  __device__ static State close(const Accumulator& best, int count, std::int64_t first) {
    return {best.key, count > 0 ? first + best.at : -1};
  }

  __device__ static State neutral() { return {lowest_key<Key<T>>(), -1}; }
  __device__ static State combine(const State& a, const State& b) {
    if (b.index < 0 || precedes(true, a.key, b.key)) return a;
    if (precedes(true, b.key, a.key)) return b;
    return a.index < b.index ? a : b;
  }

  // Writes the index and, if they are wanted, the value.
  __device__ static void write(const ReducePlan& plan, std::int64_t output, const State& state) {
    const std::int64_t to = plan.kept_out.offset(output);
    static_cast<std::int64_t*>(plan.out)[to] = state.index;
    if (plan.second_out != nullptr) {
      const std::int64_t from = plan.kept.offset(output) + plan.reduced.offset(state.index);
      static_cast<T*>(plan.second_out)[to] = stored_value(static_cast<const T*>(plan.in)[from]);
    }
  }

 private:
  KeyOf<T> key_of_;
};

}  // namespace

bool has_long_rows(const ReducePlan& plan) {
  constexpr std::int64_t kFewest = 8;  // columns that share wide accesses
  return plan.length >= kShortRow && !(plan.is_column_wise() && plan.outputs >= kFewest);
}

void reduce_arg(void* stream, const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = StateReducer<ArgReducer<T>>;
    const R reducer(plan);
    if (plan.is_column_wise()) {
      launch_columns<T, typename R::State>(stream, plan, reducer);
    } else {
      launch_short_rows<T, typename R::State>(stream, plan, reducer);
    }
  });
}

}  // namespace gantry::kernels::cuda
