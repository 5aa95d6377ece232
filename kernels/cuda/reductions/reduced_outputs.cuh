// The results of reductions, from accumulators to the outputs.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/input.hpp"
#include "kernels/math/math.hpp"
#include "kernels/reductions/wide_sum.inl"

namespace gantry::kernels::cuda {

namespace {

// The value of any and all from a count of non-zeros, the root of a sum of squares; every other
// value is itself.
template <class Acc>
__device__ Acc finished(const ReducePlan& plan, Acc value) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    if (plan.op == Reduction::any) return value != 0;
    if (plan.op == Reduction::all) return value == plan.total_length;
  } else {
    if (plan.op == Reduction::norm2) return math::sqrt(value);
  }
  return value;
}

// The results that the chunks of an output have in `plan`, or that it reads.
template <class Acc>
__device__ ChunkResults<Acc> chunk_results(const ReducePlan& plan, std::int64_t output) {
  if (plan.chunks > 1 && plan.partials != nullptr) {
    const std::int64_t first = output * plan.partial_output_stride;
    return {static_cast<const Acc*>(plan.partials) + first, plan.wide_partials + first,
            plan.partial_chunk_stride, plan.chunks};
  }
  return {};
}
// The results of an earlier pass that `plan` reads for an output.
template <class Acc>
__device__ ChunkResults<Acc> earlier_results(const ReducePlan& plan, std::int64_t output) {
  const std::int64_t first = plan.kept.offset(output);
  return {static_cast<const Acc*>(plan.in) + first, plan.wide_in + first, plan.reduced.strides[0],
          plan.length};
}

// Not inlined, as said in Note [Small repetitions].
template <class R, class Acc>
__device__ __noinline__ Acc repeated_output(const ReducePlan& plan, std::int64_t output,
                                            Acc value) {
  ChunkResults<Acc> chunks = chunk_results<Acc>(plan, output);
  if (chunks.count == 0 && plan.reads_partials) chunks = earlier_results<Acc>(plan, output);
  return repeated<R::kOp>(plan.source, output, chunks, value);
}
template <class Acc>
__device__ __noinline__ void write_wide_result(const ReducePlan& plan, std::int64_t output,
                                               std::int64_t chunk) {
  const std::int64_t first = chunk * kReduceChunk;
  const std::int64_t rest = plan.length - first;
  const std::int64_t count = rest < kReduceChunk ? rest : kReduceChunk;
  plan.wide_partials[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
      plan.reads_partials ? earlier_results<Acc>(plan, output).sum(first, count)
                          : wide_sum(plan.source, output, first, count);
}

template <class R, class Acc>
__device__ __noinline__ void write_number(const ReducePlan& plan, std::int64_t output, Acc value) {
  if constexpr (R::kIsRepeated) {
    if (is_repeated<R>(plan, value)) value = repeated_output<R>(plan, output, value);
  }
  store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, finished(plan, value),
                plan.divisor);
}

template <class R, class State>
__device__ __noinline__ void write_state(const ReducePlan& plan, std::int64_t output,
                                         const State& state) {
  R::write(plan, output, state);
}

template <class R, class Acc>
__device__ void write_output(const ReducePlan& plan, std::int64_t output, const Acc& value) {
  if constexpr (kHasState<R>) {
    write_state<R>(plan, output, value);
  } else {
    write_number<R>(plan, output, value);
  }
}

template <class R, class Acc>
__device__ void write_result(const ReducePlan& plan, std::int64_t output, std::int64_t chunk,
                             const Acc& value) {
  if (plan.chunks == 1) {
    write_output<R>(plan, output, value);
  } else {
    static_cast<Acc*>(
        plan.partials)[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
        value;
    if constexpr (R::kIsRepeated) {
      if (!is_finite(value) && is_repeated(plan.op, plan.accumulator)) {
        write_wide_result<Acc>(plan, output, chunk);
      }
    }
  }
}

// Note [Packs of outputs]
// Most results are stored as they are, side by side in a dense output. A thread then stores all of
// its outputs in one access, without a call and a switch for each. Results that are repeated, and
// outputs with other strides or dtypes, take the calls.

// Stores an aligned pack. The compiler makes an access for each element if they are computed.
template <class Vector>
__device__ void store_vector(Vector* to, const Vector& pack) {
  if constexpr (sizeof(Vector) % 16 == 0) {
    uint4 words[sizeof(Vector) / 16];
    memcpy(words, &pack, sizeof pack);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Vector) / 16); ++i) {
      asm volatile(
          "st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(to) + i),
          "r"(words[i].x), "r"(words[i].y), "r"(words[i].z), "r"(words[i].w)
          : "memory");
    }
  } else if constexpr (sizeof(Vector) == 8) {
    uint2 word;
    memcpy(&word, &pack, sizeof pack);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(word.x), "r"(word.y) : "memory");
  } else {
    *to = pack;
  }
}

// Stores values of V outputs from `first` on, kStep apart; for a kStep of 1 a multiple of V.
// Returns false if they form no pack of elements of type T.
template <class T, int kStep, int V, class Acc>
__device__ bool store_pack(void* out, std::int64_t first, const Acc (&values)[V]) {
  if constexpr (kStep > 1) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      static_cast<T*>(out)[first + v * kStep] = from_accumulator<T>(values[v]);
    }
    return true;
  }
  using Vector = StoredPack<T, V>;
  if (reinterpret_cast<std::uintptr_t>(out) % alignof(Vector) != 0) return false;
  Vector pack;
#pragma unroll
  for (int v = 0; v < V; ++v) pack.values[v] = from_accumulator<T>(values[v]);
  store_vector(reinterpret_cast<Vector*>(static_cast<T*>(out) + first), pack);
  return true;
}

// As store_pack(), with the type of `dtype`: the elements', the accumulators' or bool.
template <class In, int kStep, int V, class Acc>
__device__ bool store_pack_as(DType dtype, void* out, std::int64_t first, const Acc (&values)[V]) {
  using Same = std::conditional_t<std::is_same_v<In, StoredBool>, bool, In>;
  if constexpr (std::is_floating_point_v<Acc> == is_floating_point(dtype_of<Same>) &&
                !std::is_same_v<Same, Acc> && !std::is_same_v<Same, bool>) {
    if (dtype == dtype_of<Same>) return store_pack<Same, kStep>(out, first, values);
  }
  if (dtype == dtype_of<Acc>) return store_pack<Acc, kStep>(out, first, values);
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    if (dtype == DType::bool_) return store_pack<bool, kStep>(out, first, values);
  }
  return false;
}

// True if R::are_final(plan, state, spread, mean) has the results of a state.
template <class R>
constexpr bool kHasMoments = requires(const ReducePlan& plan, typename R::State state) {
  R::are_final(plan, state, state.mean, state.mean);
};

// True if the result of a state is an index.
template <class R>
constexpr bool kHasIndex = requires(typename R::State state) {
  state.index;
};

// Stores the results of V outputs as store_pack() does. Returns false if they are not all final.
template <class R, class In, int kStep, int V, class State>
__device__ bool store_results(const ReducePlan& plan, std::int64_t first,
                              const State (&results)[V]) {
  if (!plan.has_dense_outputs) return false;
  if constexpr (!kHasState<R>) {
    bool is_final = true;
    State values[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      is_final = is_final && !is_repeated<R>(plan, results[v]);
      values[v] = finished(plan, results[v]);
    }
    if (!is_final) return false;
    if constexpr (std::is_floating_point_v<State>) {
      if (plan.divisor != 1) {
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] = values[v] / static_cast<State>(plan.divisor);
      }
    }
    return store_pack_as<In, kStep>(plan.out_dtype, plan.out, first, values);
  } else if constexpr (kHasMoments<R>) {
    bool are_final = true;
    decltype(State::mean) spreads[V];
    decltype(State::mean) means[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      are_final = are_final && R::are_final(plan, results[v], spreads[v], means[v]);
    }
    return are_final && store_pack_as<In, kStep>(plan.out_dtype, plan.out, first, spreads) &&
           (plan.second_out == nullptr ||
            store_pack_as<In, kStep>(plan.out_dtype, plan.second_out, first, means));
  } else if constexpr (kHasIndex<R>) {
    if (plan.second_out != nullptr) return false;
    std::int64_t indices[V];
#pragma unroll
    for (int v = 0; v < V; ++v) indices[v] = results[v].index;
    return store_pack<std::int64_t, kStep>(plan.out, first, indices);
  }
  return false;
}

// Writes the results of V outputs of one chunk from `first` on, a multiple of V. With a kStep above
// 1 they are so far apart, and some may be behind the last output.
template <class R, class In, int kStep = 1, int V, class State>
__device__ void write_outputs(const ReducePlan& plan, std::int64_t first,
                              const State (&results)[V]) {
  if (kStep == 1 || first + (V - 1) * kStep < plan.outputs) {
    if (store_results<R, In, kStep>(plan, first, results)) return;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (kStep == 1 || first + v * kStep < plan.outputs) {
      write_output<R>(plan, first + v * kStep, results[v]);
    }
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
