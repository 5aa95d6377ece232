// The kernels of an elementwise loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {
namespace detail {

// Elements of one vector access of a thread: at most 16 bytes of the widest operand, so that
// neighbouring threads access neighbouring bytes.
template <class... T>
constexpr int vector_size() {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return widest > 16 ? 1 : static_cast<int>(16 / widest);
}

// Vectors that a thread has in flight: 16 bytes of the narrowest operand, at least 4 elements, but
// at most 64 bytes of the widest, and at most 64 bytes of all inputs: more take registers alone.
template <class Out, class... In>
constexpr int vectors_in_flight() {
  constexpr std::size_t V = vector_size<Out, In...>();
  std::size_t widest = sizeof(Out);
  std::size_t narrowest = sizeof(Out) < 8 ? sizeof(Out) : 8;
  ((widest = sizeof(In) > widest ? sizeof(In) : widest), ...);
  ((narrowest = sizeof(In) < narrowest ? sizeof(In) : narrowest), ...);
  const std::size_t wanted = 16 / narrowest < 4 ? 4 : 16 / narrowest;
  const std::size_t elements = wanted * widest > 64 ? 64 / widest : wanted;
  const std::size_t loaded = V * (sizeof(In) + ... + 0);
  const std::size_t most = loaded == 0 ? 4 : 64 / loaded;
  const std::size_t vectors = elements / V < most ? elements / V : most;
  return vectors < 1 ? 1 : static_cast<int>(vectors);
}

// Elements that a thread of a strided loop has in flight.
inline constexpr int kStridedInFlight = 4;

// Ops whose f32 version is one of CUDA's, though they are slow on the host.
template <class Op>
concept WideOpOnGpu = Op::kWideOnGpu;

// Ops that take longer than the loads of a thread.
template <class Op>
concept LongOp = Op::kLong;

template <class Source>
struct StoredTypeOf {
  using type = std::uint32_t;  // a Counter occupies no memory and does not decide the size
};
template <class T>
struct StoredTypeOf<ElementSource<T>> {
  using type = T;
};

// A random operation of captured work: the position of its stream stands in device memory. A type
// of its own, so that other launches keep the round keys in the kernel's parameters.
template <class Op>
struct Replayed : Op {
  explicit Replayed(const Op& op) : Op(op) {}

  __device__ void resolve() { this->stream = this->stream.resolved(); }
};

template <class Op>
concept ReplayableOp = requires(const Op& op) {
  op.stream.is_replayed();
}
&&!requires(Op & op) { op.resolve(); };

template <class Op>
__device__ void resolve(Op& op) {
  if constexpr (requires { op.resolve(); }) op.resolve();
}

// Note [Loads in flight]
// A thread loads the elements of `U` vectors before it uses the first of them. They stay as memory
// has them until the last load is issued, because a conversion would wait for its load. A number
// replaces the elements behind the loads, because a branch would part them.
template <class Source, int V, int U>
struct Batch;

template <class T, int V, int U>
struct Batch<ElementSource<T>, V, U> {
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

  StoredPack<Stored, V> packs[U];
  ComputeType<T> number;
  bool is_number;

  __device__ explicit Batch(const ElementSource<T>& source)
      : number(source.number), is_number(source.is_number) {}

  // Loads vector u, whose elements are at `offset` and behind it.
  __device__ void load(const ElementSource<T>& source, int u, std::int64_t offset) {
    const auto* data = reinterpret_cast<const Stored*>(source.data);
    if (!is_number) packs[u] = *reinterpret_cast<const StoredPack<Stored, V>*>(data + offset);
  }
  __device__ void load_one(const ElementSource<T>& source, int u, int i, std::int64_t offset) {
    if (!is_number) packs[u].values[i] = reinterpret_cast<const Stored*>(source.data)[offset];
  }
  // load() for any alignment, by the one or two aligned vectors that hold the elements.
  __device__ void load_run(const ElementSource<T>& source, int u, std::int64_t offset) {
    if (is_number) return;
    constexpr int kWords = V * static_cast<int>(sizeof(Stored)) / 4;
    using Words = StoredPack<std::uint32_t, kWords>;
    const auto* const begin = reinterpret_cast<const Stored*>(source.data) + offset;
    const auto skipped =
        static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(begin) % (4 * kWords));
    const auto* const aligned =
        reinterpret_cast<const Words*>(reinterpret_cast<const char*>(begin) - skipped);
    Words words[2];
    words[0] = words[1] = aligned[0];
    if (skipped != 0) words[1] = aligned[1];
    std::uint32_t* const all = words[0].values;
#pragma unroll
    for (unsigned step = kWords / 2; step > 0; step /= 2) {
#pragma unroll
      for (unsigned w = 0; w + step < 2 * kWords; ++w) {
        if ((skipped & 4 * step) != 0) all[w] = all[w + step];
      }
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[0].values[w] = __funnelshift_r(all[w], all[w + 1], 8 * (skipped % 4));
    }
    packs[u] = *reinterpret_cast<const StoredPack<Stored, V>*>(words);
  }
  // The first element of vector u is the value of all.
  __device__ void repeat(int u) {
#pragma unroll
    for (int i = 1; i < V; ++i) packs[u].values[i] = packs[u].values[0];
  }
  __device__ ComputeType<T> value(int u, int i) const {
    if (is_number) return number;
    if constexpr (std::is_same_v<T, bool>) {
      return packs[u].values[i] != 0;
    } else {
      return static_cast<ComputeType<T>>(packs[u].values[i]);
    }
  }
};

template <int V, int U>
struct Batch<Counter, V, U> {
  std::int64_t values[U][V];

  __device__ explicit Batch(const Counter&) {}
  __device__ void load(const Counter& source, int u, std::int64_t offset) {
#pragma unroll
    for (int i = 0; i < V; ++i) load_one(source, u, i, offset + i);
  }
  __device__ void load_one(const Counter& source, int u, int i, std::int64_t offset) {
    values[u][i] = source.begin + offset;
  }
  __device__ void load_run(const Counter& source, int u, std::int64_t offset) {
    load(source, u, offset);
  }
  __device__ void repeat(int u) {
#pragma unroll
    for (int i = 1; i < V; ++i) values[u][i] = values[u][0];
  }
  __device__ std::int64_t value(int u, int i) const { return values[u][i]; }
};

// Writes vector u of a batch's results to `out`.
template <int V, class Out, class Op, class... Batches>
__device__ void store_pack(const Op& op, Out* out, int u, const Batches&... batches) {
  StoredPack<Out, V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) result.values[i] = convert<Out>(op(batches.value(u, i)...));
  *reinterpret_cast<StoredPack<Out, V>*>(out) = result;
}

// U vectors from number `first` on, kThreads apart.
template <int V, int U, class Source>
__device__ Batch<Source, V, U> load_dense(const Source& source, std::int64_t first) {
  Batch<Source, V, U> batch(source);
#pragma unroll
  for (int u = 0; u < U; ++u) batch.load(source, u, (first + u * kThreads) * V);
  return batch;
}

template <int V, int U, class Out, class Op, class... Batches>
__device__ void store_dense(const Op& op, Out* out, std::int64_t first, const Batches&... batches) {
#pragma unroll
  for (int u = 0; u < U; ++u) {
    store_pack<V>(op, out + (first + u * kThreads) * V, u, batches...);
  }
}

template <int V, int U, class Out, class Op, class... Sources>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(std::int64_t n, Op op, Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  const std::int64_t packs = n / V;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (U * kThreads);
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (U * kThreads) + threadIdx.x;
  for (; i + (U - 1) * kThreads < packs; i += step) {
    store_dense<V, U>(op, out, i, load_dense<V, U>(sources, i)...);
  }
  if constexpr (U > 1) {
#pragma unroll 1
    for (int u = 0; u < U - 1 && i < packs; ++u, i += kThreads) {
      store_dense<V, 1>(op, out, i, load_dense<V, 1>(sources, i)...);
    }
  }
  i = packs * V + first_index();
  if (i < n) out[i] = convert<Out>(op(sources.load(i)...));
}

template <int U, int N, class Source>
__device__ Batch<Source, 1, U> load_strided(const Source& source,
                                            const std::int64_t (&offsets)[U][N], std::size_t k) {
  Batch<Source, 1, U> batch(source);
#pragma unroll
  for (int u = 0; u < U; ++u) batch.load(source, u, offsets[u][k]);
  return batch;
}

// Writes the elements of a batch, of which those below `count` kThreads apart exist.
template <int U, class Out, class Op, int N, class... Batches>
__device__ void store_strided(const Op& op, Out* out, const std::int64_t (&offsets)[U][N],
                              std::int64_t count, const Batches&... batches) {
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (u * kThreads < count) out[offsets[u][0]] = convert<Out>(op(batches.value(u, 0)...));
  }
}

template <int U, class Out, class Op, int N, std::size_t... K, class... Sources>
__device__ void run_strided(const Op& op, Out* out, const std::int64_t (&offsets)[U][N],
                            std::int64_t count, std::index_sequence<K...>,
                            const Sources&... sources) {
  store_strided<U>(op, out, offsets, count, load_strided<U>(sources, offsets, K + 1)...);
}

template <int U, class Out, class Op, int N, class... Sources>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(std::uint32_t n, const __grid_constant__ OffsetCalculator<N> calculator, Op op,
                   Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (U * kThreads);
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (U * kThreads) + threadIdx.x;
  for (; i < n; i += step) {
    std::int64_t offsets[U][N];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      // Behind the end the last element is loaded again, and not written.
      const std::int64_t at = i + u * kThreads < n ? i + u * kThreads : n - 1;
      calculator.offsets(static_cast<std::uint32_t>(at), offsets[u]);
    }
    run_strided<U>(op, out, offsets, n - i, std::index_sequence_for<Sources...>{}, sources...);
  }
}

// Note [Vectors of strided operands]
// V consecutive positions are one vector of the output. They lie in at most three rows, since a row
// has at least V / 2: three divisions serve V positions. An input is loaded as the output is stored
// (its bit in `whole`) if its rows hold whole vectors, or if it is dense. Inputs of long rows are
// loaded by aligned vectors, too, wherever they begin, or by one element that fills a row. Others
// are loaded element by element: neighbouring threads share the lines.

// The rows of V positions: the offsets of the first position and of the next two rows, and the
// number of positions before each of them.
template <int N>
struct VectorRows {
  std::int64_t offsets[3][N];
  std::uint32_t before[2];
};

// Elements of V positions in up to kRows rows.
template <int kRows, int V, int N, class Source>
__device__ void load_elements(Batch<Source, V, 1>& batch, const Source& source,
                              const VectorRows<N>& rows, std::int64_t stride, std::size_t k) {
  const std::int64_t first = rows.offsets[0][k];
  const std::int64_t second = rows.offsets[1][k] - rows.before[0] * stride;
  const std::int64_t third = rows.offsets[2][k] - rows.before[1] * stride;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const bool is_third = kRows == 3 && i >= rows.before[1];
    const std::int64_t row = i < rows.before[0] ? first : is_third ? third : second;
    batch.load_one(source, 0, i, row + i * stride);
  }
}

// `length`: of a row.
template <int V, int N, class Source>
__device__ Batch<Source, V, 1> load_vector(const Source& source, bool is_whole,
                                           const VectorRows<N>& rows, std::uint32_t length,
                                           std::int64_t stride, std::size_t k) {
  // Of such rows, the vectors of a warp cross two ends at most.
  constexpr std::uint32_t kLongRow = 32 * V;
  Batch<Source, V, 1> batch(source);
  const bool is_one_row = length >= kLongRow && rows.before[0] >= V;
  if (is_whole) {
    batch.load(source, 0, rows.offsets[0][k]);
  } else if (is_one_row && stride == 1) {
    batch.load_run(source, 0, rows.offsets[0][k]);
  } else if (is_one_row && stride == 0) {
    batch.load_one(source, 0, 0, rows.offsets[0][k]);
    batch.repeat(0);
  } else if (length >= V) {
    load_elements<2>(batch, source, rows, stride, k);
  } else {
    load_elements<3>(batch, source, rows, stride, k);
  }
  return batch;
}

template <int V, class Out, class Op, int N, std::size_t... K, class... Sources>
__device__ void run_vector(const Op& op, Out* out, const OffsetCalculator<N>& calculator,
                           std::uint32_t at, std::uint32_t whole, std::index_sequence<K...>,
                           const Sources&... sources) {
  VectorRows<N> rows = {};
  rows.before[0] = calculator.offsets(at, rows.offsets[0]);
  rows.before[1] = rows.before[0] + calculator.sizes[0].divisor;
  if (rows.before[0] < V) calculator.offsets(at + rows.before[0], rows.offsets[1]);
  if (rows.before[1] < V) calculator.offsets(at + rows.before[1], rows.offsets[2]);
  store_pack<V>(op, out + rows.offsets[0][0], 0,
                load_vector<V>(sources, (whole >> K & 1) != 0, rows, calculator.sizes[0].divisor,
                               calculator.strides[0][K + 1], K + 1)...);
}

template <int V, class Out, class Op, int N, class... Sources>
__global__ void __launch_bounds__(kThreads)
    vectors_kernel(std::uint32_t n, const __grid_constant__ OffsetCalculator<N> calculator,
                   std::uint32_t whole, Op op, Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  const std::uint32_t vectors = n / V;
  for (std::int64_t i = first_index(); i < vectors; i += index_step()) {
    run_vector<V>(op, out, calculator, static_cast<std::uint32_t>(i) * V, whole,
                  std::index_sequence_for<Sources...>{}, sources...);
  }
  const std::int64_t last = static_cast<std::int64_t>(vectors) * V + first_index();
  if (last < n) {
    std::int64_t offsets[1][N];
    calculator.offsets(static_cast<std::uint32_t>(last), offsets[0]);
    run_strided<1>(op, out, offsets, 1, std::index_sequence_for<Sources...>{}, sources...);
  }
}

// A thread writes the blocks [0, whole) as vectors, and the others element by element.
template <class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(std::int64_t n, std::int64_t whole, Op op, Out* out) {
  constexpr int V = Op::kSize;
  wait_for_previous();
  resolve(op);
  std::int64_t b = first_index();
  for (; b < whole; b += index_step()) {
    const auto block = op.block(static_cast<std::uint64_t>(b));
    StoredPack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = drawn<Out>(block.values[i]);
    *reinterpret_cast<StoredPack<Out, V>*>(out + b * V) = result;
  }
  for (; b * V < n; b += index_step()) {
    const auto block = op.block(static_cast<std::uint64_t>(b));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (b * V + i < n) out[b * V + i] = drawn<Out>(block.values[i]);
    }
  }
}

template <class Out, class Op, class Source>
__global__ void __launch_bounds__(kThreads)
    drawn_kernel(std::int64_t n, std::int64_t whole, Op op, Out* out, Source source) {
  constexpr int V = Op::kSize;
  wait_for_previous();
  std::int64_t b = first_index();
  for (; b < whole; b += index_step()) {
    const auto draws = op.block(static_cast<std::uint64_t>(b));
    const auto pack = source.template load_pack<V>(b * V);
    StoredPack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = op.result(draws.values[i], pack.values[i]);
    *reinterpret_cast<StoredPack<Out, V>*>(out + b * V) = result;
  }
  for (; b * V < n; b += index_step()) {
    const auto draws = op.block(static_cast<std::uint64_t>(b));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (b * V + i < n) out[b * V + i] = op.result(draws.values[i], source.load(b * V + i));
    }
  }
}

}  // namespace detail

}  // namespace gantry::kernels::cuda
