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

  // As start() and take(), for elements in increasing order of position, the first at `k`.
  __device__ static Accumulator start_at(int k) { return {lowest_key<Key<T>>(), k}; }
  __device__ void take_next(Accumulator& into, T element, int k) const {
    const Key<T> key = key_of_(element);
    // A NaN is not below or equal to a number; behind a NaN nothing is better.
    const bool is_better = !(key <= into.key) & (into.key == into.key);
    into = {is_better ? key : into.key, is_better ? k : into.at};
  }
  // The better one of two parts. A part without elements has a position behind the last one.
  __device__ static Accumulator better(const Accumulator& a, const Accumulator& b) {
    if (precedes(true, a.key, b.key)) return a;
    if (precedes(true, b.key, a.key)) return b;
    return a.at < b.at ? a : b;
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

// Threads of a block of reduce_arg_columns.
constexpr int kArgThreads = 256;
// Neighbouring columns that a thread reads at once, and the rows that it has in flight.
template <class T>
constexpr int kArgPack = sizeof(T) == 1 ? 8 : 16 / static_cast<int>(sizeof(T));
template <int V>
constexpr int kArgBatch = V == 1 ? 16 : 8;
// Fewest blocks that fill a GPU.
constexpr std::int64_t kManyArgTiles = 200;

// Reduces a chunk of columns: no order of the elements changes the result. P threads of a block
// share the rows of a pack of V columns. kIsLong: the last of the blocks of a column merges its
// chunks, for which the compiler takes registers of the loop.
template <class T, class R, int V, int P, bool kIsLong = false>
__global__ void __launch_bounds__(kArgThreads, 4)
    reduce_arg_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  using Best = typename R::Accumulator;
  using Vector = StoredPack<T, V>;
  constexpr int kPacks = kArgThreads / P;
  constexpr int kTile = kPacks * V;
  constexpr int kBatch = kArgBatch<V>;
  __shared__ Best shared[P > 1 ? P : 1][P > 1 ? kTile : 1];
  const std::int64_t tiles = (plan.outputs + kTile - 1) / kTile;
  const std::int64_t stride = plan.reduced.strides[0];
  const int thread = static_cast<int>(threadIdx.x);
  const int pack = thread % kPacks;
  const int part = thread / kPacks;
  const std::int64_t chunks = kIsLong ? plan.chunks : 1;
  for (std::int64_t task = blockIdx.x; task < tiles * chunks; task += gridDim.x) {
    const std::int64_t chunk = kIsLong ? task / tiles : 0;
    const std::int64_t tile = task - chunk * tiles;
    const std::int64_t begin = chunk * kReduceChunk;
    const int count = kIsLong ? chunk_length(plan, chunk) : static_cast<int>(plan.length);
    const std::int64_t first = tile * kTile;
    const std::int64_t output = first + pack * V;
    const bool is_present = output < plan.outputs;
    const T* column = static_cast<const T*>(plan.in) + (begin + part) * stride;
    if (is_present) column += distant_offset(plan.kept, output);
    const int end = is_present ? count : 0;
    Best own[V];
#pragma unroll
    for (int v = 0; v < V; ++v) own[v] = R::start_at(part);
    const auto load = [&](int i) {
      return *reinterpret_cast<const Vector*>(column + i * P * stride);
    };
    int k = part;
#pragma unroll 1
    for (; k + (kBatch - 1) * P < end; k += kBatch * P) {
      Vector batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) batch[i] = load(i);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int v = 0; v < V; ++v) reducer.take_next(own[v], batch[i].values[v], k + i * P);
      }
      column += kBatch * P * stride;
    }
#pragma unroll 1
    for (; k < end; k += P) {
      const Vector vector = load(0);
#pragma unroll
      for (int v = 0; v < V; ++v) reducer.take_next(own[v], vector.values[v], k);
      column += P * stride;
    }
    if constexpr (P == 1) {
      typename R::State results[V];
#pragma unroll
      for (int v = 0; v < V; ++v) results[v] = reducer.close(own[v], count, begin);
      if (is_present) write_outputs<R, T>(plan, output, results);
    } else {
      __syncthreads();  // the previous tile may still read the shared array
#pragma unroll
      for (int v = 0; v < V; ++v) shared[part][pack * V + v] = own[v];
      for (int half = P / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int at = thread; at < half * kTile; at += kArgThreads) {
          Best& into = shared[at / kTile][at % kTile];
          into = R::better(into, shared[at / kTile + half][at % kTile]);
        }
      }
      __syncthreads();
      for (int c = thread; c < kTile && first + c < plan.outputs; c += kArgThreads) {
        const typename R::State result[1] = {reducer.close(shared[0][c], count, begin)};
        if constexpr (kIsLong) {
          write_result<R>(plan, first + c, chunk, result[0]);
        } else {
          write_outputs<R, T>(plan, first + c, result);
        }
      }
    }
    if constexpr (kIsLong) finish_columns<kTile, typename R::State>(reducer, plan, tile);
  }
}

// Launches reduce_arg_columns with as many columns a block as still fill a GPU. Returns false if
// another kernel fills it better.
template <class T, class R, int V>
bool launch_arg_columns(void* stream, const ReducePlan& plan, const R& reducer) {
  const auto run = [&](auto kernel, int parts, std::int64_t fewest) {
    const std::int64_t columns = kArgThreads / parts * V;
    const std::int64_t tiles = (plan.outputs + columns - 1) / columns * plan.chunks;
    if (tiles < fewest) return false;
    launch("reduce_arg_columns", stream, limited(tiles), kArgThreads, 0, kernel, plan, reducer);
    return true;
  };
  if (plan.chunks > 1) {
    return !has_narrow_columns(plan) && run(reduce_arg_columns<T, R, V, 32, true>, 32, 1);
  }
  return run(reduce_arg_columns<T, R, V, 1>, 1, kManyArgTiles) ||
         run(reduce_arg_columns<T, R, V, 8>, 8, kManyArgTiles) ||
         run(reduce_arg_columns<T, R, V, 32>, 32, kManyArgTiles);
}

static_assert(kHasIndex<StateReducer<ArgReducer<float>>>);

}  // namespace

bool has_long_rows(const ReducePlan& plan) {
  constexpr std::int64_t kFewest = 8;         // columns that share wide accesses
  constexpr std::int64_t kWideRow = 256;      // elements that a warp reads in two or more accesses
  constexpr std::int64_t kRowAlignment = 16;  // bytes
  if (plan.is_column_wise() && plan.outputs >= kFewest) return false;
  if (plan.length >= kShortRow) return true;
  const auto size = static_cast<std::int64_t>(element_size(plan.in_dtype));
  if (plan.length < kWideRow || !is_dense(plan) ||
      reinterpret_cast<std::uintptr_t>(plan.in) % kRowAlignment != 0) {
    return false;
  }
  for (int d = 0; d < plan.kept.ndim; ++d) {
    if (plan.kept.strides[d] * size % kRowAlignment != 0) return false;
  }
  return true;
}

void reduce_arg(void* stream, const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = StateReducer<ArgReducer<T>>;
    const R reducer(plan);
    if (!plan.is_column_wise()) {
      launch_short_rows<T, typename R::State>(stream, plan, reducer);
      return;
    }
    const bool is_done = has_packs<T, kArgPack<T>>(plan)
                             ? launch_arg_columns<T, R, kArgPack<T>>(stream, plan, reducer)
                             : launch_arg_columns<T, R, 1>(stream, plan, reducer);
    if (!is_done) launch_columns<T, typename R::State>(stream, plan, reducer);
  });
}

}  // namespace gantry::kernels::cuda
