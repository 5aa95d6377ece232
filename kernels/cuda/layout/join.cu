#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"
#include "kernels/input.hpp"
#include "kernels/layout/join_plan.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

namespace {

// Where a word of the output comes from.
struct Place {
  std::uint32_t row;
  std::uint32_t column;
  int input;
};

__device__ Place place_of(const JoinPlan& plan, const FastDivisor& length, std::uint32_t word) {
  Place place;
  place.row = length.divide(word);
  place.column = word - place.row * length.divisor;
  place.input = 0;
  while (place.column >= plan.starts[place.input + 1]) ++place.input;
  return place;
}

template <class W>
__device__ const W* address_of(const JoinPlan& plan, const Place& place) {
  const std::int64_t start = plan.starts[place.input];
  return static_cast<const W*>(plan.inputs[place.input]) +
         place.row * (plan.starts[place.input + 1] - start) + (place.column - start);
}

// V words of the output from `first` on, mostly of one input.
template <int V, class W>
__device__ StoredPack<W, V> load_words(const JoinPlan& plan, const FastDivisor& length,
                                       std::uint32_t first) {
  StoredPack<W, V> pack;
  Place place = place_of(plan, length, first);
  const W* from = address_of<W>(plan, place);
  if (plan.starts[place.input + 1] - place.column >= V) {
#pragma unroll
    for (int v = 0; v < V; ++v) pack.values[v] = from[v];
    return pack;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    pack.values[v] = *from++;
    if (++place.column < plan.starts[place.input + 1] || v == V - 1) continue;
    if (++place.input == plan.count) place = {place.row + 1, 0, 0};
    from = address_of<W>(plan, place);
  }
  return pack;
}

// V words are 16 bytes. A thread has U vectors in flight.
template <int V, int U, class W>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const __grid_constant__ JoinPlan plan, const FastDivisor length,
                std::uint32_t count) {
  W* out = static_cast<W*>(plan.out);
  const std::uint32_t vectors = count / V;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (U * kThreads);
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (U * kThreads) + threadIdx.x;
  for (; i < vectors; i += step) {
    StoredPack<W, V> packs[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (i + u * kThreads >= vectors) break;
      packs[u] = load_words<V, W>(plan, length, static_cast<std::uint32_t>(i + u * kThreads) * V);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (i + u * kThreads >= vectors) break;
      *reinterpret_cast<StoredPack<W, V>*>(out + (i + u * kThreads) * V) = packs[u];
    }
  }
  const std::int64_t last = static_cast<std::int64_t>(vectors) * V + first_index();
  if (last < count) {
    const Place place = place_of(plan, length, static_cast<std::uint32_t>(last));
    out[last] = *address_of<W>(plan, place);
  }
}

}  // namespace

void join(void* stream, const JoinPlan& plan) {
  const auto count = static_cast<std::uint32_t>(plan.rows * plan.length());
  dispatch_word(plan.word_bytes, [&](auto tag) {
    using W = typename decltype(tag)::type;
    constexpr int V = 16 / static_cast<int>(sizeof(W));
    constexpr int U = V == 1 ? 4 : V == 2 ? 2 : 1;
    launch("cat", stream, blocks_for((count / V + U - 1) / U), kThreads, 0, join_kernel<V, U, W>,
           plan, FastDivisor(static_cast<std::uint32_t>(plan.length())), count);
  });
}

}  // namespace gantry::kernels::cuda
