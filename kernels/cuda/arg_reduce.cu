#include "kernels/cuda/launch.cuh"
#include "kernels/fibre_plan.hpp"
#include "kernels/impl/arg_reduce.inl"

namespace gantry::kernels::cuda {

namespace {

// The distribution of a block's kThreads threads: `fibres` fibres at a time, kThreads / fibres
// threads per fibre. Both are powers of two.
struct ArgShape {
  int fibres = 1;
  bool fibres_are_fastest = false;  // neighbouring threads have neighbouring fibres, not elements
};

// One block finds the argmax of one chunk of `shape.fibres` fibres. A fibre of several chunks takes
// two launches: the first writes each chunk's argmax to `candidates`, the second (`merges`) reduces
// the candidates of each fibre.
template <class T>
__global__ void __launch_bounds__(kThreads)
    arg_reduce_kernel(const __grid_constant__ FibrePlan plan,
                      const __grid_constant__ Fibres indices, bool largest, ArgShape shape,
                      std::int64_t chunks, std::int64_t* candidates, bool merges) {
  using Acc = AccumulatorType<T>;
  __shared__ ArgReduceState<Acc> shared[kThreads];
  const int threads_per_fibre = kThreads / shape.fibres;
  const int thread = static_cast<int>(threadIdx.x);
  const int fibre_in_block =
      shape.fibres_are_fastest ? thread % shape.fibres : thread / threads_per_fibre;
  const int thread_in_fibre =
      shape.fibres_are_fastest ? thread / shape.fibres : thread % threads_per_fibre;
  const std::int64_t tiles = (plan.count + shape.fibres - 1) / shape.fibres;
  const std::int64_t tasks = merges ? tiles : tiles * chunks;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t fibre = (task - chunk * tiles) * shape.fibres + fibre_in_block;
    const bool is_present = fibre < plan.count;
    const T* in = static_cast<const T*>(plan.in.data);
    if (is_present) in += plan.in.outer.offset(fibre);
    ArgReduceState<Acc> best{Acc(0), -1};
    if (is_present && merges) {
      for (std::int64_t p = thread_in_fibre; p < chunks; p += threads_per_fibre) {
        const std::int64_t index = candidates[fibre * chunks + p];
        best = combine(largest, best, {static_cast<Acc>(in[index * plan.in.stride]), index});
      }
    } else if (is_present) {
      const std::int64_t first = chunk * kArgChunk;
      const std::int64_t last = first + kArgChunk < plan.length ? first + kArgChunk : plan.length;
#pragma unroll 4
      for (std::int64_t k = first + thread_in_fibre; k < last; k += threads_per_fibre) {
        const Acc value = static_cast<Acc>(in[k * plan.in.stride]);
        if (best.index < 0 || precedes(largest, value, best.value)) best = {value, k};
      }
    }
    shared[thread] = best;
    for (int half = threads_per_fibre / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread_in_fibre < half) {
        const int partner = shape.fibres_are_fastest ? thread + half * shape.fibres : thread + half;
        shared[thread] = combine(largest, shared[thread], shared[partner]);
      }
    }
    if (is_present && thread_in_fibre == 0) {
      const std::int64_t index = shared[thread].index;
      if (chunks > 1 && !merges) {
        candidates[fibre * chunks + chunk] = index;
      } else {
        static_cast<std::int64_t*>(indices.data)[indices.outer.offset(fibre)] = index;
        if (plan.out.data != nullptr) {
          static_cast<T*>(plan.out.data)[plan.out.outer.offset(fibre)] =
              stored_value(in[index * plan.in.stride]);
        }
      }
    }
    __syncthreads();
  }
}

ArgShape choose_shape(const FibrePlan& plan) {
  if (plan.is_column_wise() && plan.count >= 8) return {32, true};
  int threads_per_fibre = 1;
  while (threads_per_fibre < kThreads && threads_per_fibre < plan.length) threads_per_fibre *= 2;
  return {kThreads / threads_per_fibre, false};
}

}  // namespace

void arg_reduce(void* stream, bool largest, const FibrePlan& plan, const Fibres& indices,
                std::int64_t* candidates) {
  const std::int64_t chunks = (plan.length + kArgChunk - 1) / kArgChunk;
  const ArgShape shape = choose_shape(plan);
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](const ArgShape& how, bool merges) {
      const std::int64_t tiles = (plan.count + how.fibres - 1) / how.fibres;
      launch("arg_reduce", stream, blocks_for((merges ? tiles : tiles * chunks) * kThreads),
             kThreads, 0, arg_reduce_kernel<T>, plan, indices, largest, how, chunks, candidates,
             merges);
    };
    run(shape, false);
    if (chunks > 1) run({1, false}, true);
  });
}

}  // namespace gantry::kernels::cuda
