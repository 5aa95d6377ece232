#include "kernels/cuda/launch.cuh"
#include "kernels/impl/arg_reduce.inl"
#include "kernels/line_plans.hpp"

namespace gantry::kernels::cuda {

namespace {

// How a block of kThreads threads spreads over lines and their elements: `across` lines at a time,
// kThreads / across threads to a line (both powers of two).
struct ArgShape {
  int across = 1;
  bool lines_are_fastest = false;  // neighbouring threads have neighbouring lines, not elements
};

// One block finds the first winner of one part of `across` lines. With `candidates`, winners of
// several parts go there (or come from there: `merges`, then all parts of a line are looked at).
template <class T>
__global__ void __launch_bounds__(kThreads)
    arg_reduce_kernel(const __grid_constant__ LinePlan plan, const __grid_constant__ Lines indices,
                      bool largest, ArgShape shape, std::int64_t parts, std::int64_t* candidates,
                      bool merges) {
  using Acc = AccumulatorType<T>;
  __shared__ Champion<Acc> shared[kThreads];
  const int team = kThreads / shape.across;
  const int thread = static_cast<int>(threadIdx.x);
  const int slot = shape.lines_are_fastest ? thread % shape.across : thread / team;
  const int member = shape.lines_are_fastest ? thread / shape.across : thread % team;
  const std::int64_t tiles = (plan.count + shape.across - 1) / shape.across;
  const std::int64_t tasks = merges ? tiles : tiles * parts;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t part = task / tiles;
    const std::int64_t line = (task - part * tiles) * shape.across + slot;
    const bool is_present = line < plan.count;
    const T* in = static_cast<const T*>(plan.in.data);
    if (is_present) in += plan.in.lines.offset(line);
    Champion<Acc> best{Acc(0), -1};
    if (is_present && merges) {
      for (std::int64_t p = member; p < parts; p += team) {
        const std::int64_t index = candidates[line * parts + p];
        best = winner(largest, best, {static_cast<Acc>(in[index * plan.in.stride]), index});
      }
    } else if (is_present) {
      const std::int64_t first = part * kArgPart;
      const std::int64_t last = first + kArgPart < plan.length ? first + kArgPart : plan.length;
#pragma unroll 4
      for (std::int64_t k = first + member; k < last; k += team) {
        const Acc value = static_cast<Acc>(in[k * plan.in.stride]);
        if (best.index < 0 || beats(largest, value, best.value)) best = {value, k};
      }
    }
    shared[thread] = best;
    for (int half = team / 2; half > 0; half /= 2) {
      __syncthreads();
      if (member < half) {
        const int partner = shape.lines_are_fastest ? thread + half * shape.across : thread + half;
        shared[thread] = winner(largest, shared[thread], shared[partner]);
      }
    }
    if (is_present && member == 0) {
      const std::int64_t index = shared[thread].index;
      if (parts > 1 && !merges) {
        candidates[line * parts + part] = index;
      } else {
        static_cast<std::int64_t*>(indices.data)[indices.lines.offset(line)] = index;
        if (plan.out.data != nullptr) {
          static_cast<T*>(plan.out.data)[plan.out.lines.offset(line)] =
              stored_winner(in[index * plan.in.stride]);
        }
      }
    }
    __syncthreads();
  }
}

ArgShape choose_shape(const LinePlan& plan) {
  if (plan.is_column_wise() && plan.count >= 8) return {32, true};
  int team = 1;
  while (team < kThreads && team < plan.length) team *= 2;
  return {kThreads / team, false};
}

}  // namespace

void arg_reduce(void* stream, bool largest, const LinePlan& plan, const Lines& indices,
                std::int64_t* candidates) {
  const std::int64_t parts = (plan.length + kArgPart - 1) / kArgPart;
  const ArgShape shape = choose_shape(plan);
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](const ArgShape& how, bool merges) {
      const std::int64_t tiles = (plan.count + how.across - 1) / how.across;
      launch("arg_reduce", stream, blocks_for((merges ? tiles : tiles * parts) * kThreads),
             kThreads, 0, arg_reduce_kernel<T>, plan, indices, largest, how, parts, candidates,
             merges);
    };
    run(shape, false);
    if (parts > 1) run({1, false}, true);
  });
}

}  // namespace gantry::kernels::cuda
