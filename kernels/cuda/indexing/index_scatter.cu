// index_scatter: Note [Deterministic scatter], for indices that all fibres share. The indices are
// sorted instead of the positions: the sort costs as much as one fibre.
#include "kernels/cuda/indexing/index_rows.hpp"
#include "kernels/cuda/indexing/scatter_keys.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// V neighbouring elements of a fibre or of neighbouring fibres.
template <class Update, int V>
using Vector = StoredPack<typename Update::Element, V>;

template <class Update, int V>
__device__ void apply(Vector<Update, V>& to, const Vector<Update, V>& from) {
#pragma unroll
  for (int v = 0; v < V; ++v) to.values[v] = Update::apply(to.values[v], from.values[v]);
}

// Threads of dim x take V fibres, threads of dim y take sorted indices. The thread of the first
// index in a run of equal ones makes all writes of the run to its fibres. The calculator and the
// strides of the plan count vectors.
template <class Update, class Key, int V>
__global__ void __launch_bounds__(kThreads)
    index_runs_kernel(const __grid_constant__ IndexingPlan plan,
                      const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t fibres,
                      std::uint32_t count, const Key* keys, const std::uint32_t* positions) {
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const std::int64_t fibre_step = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; i < count;
       i += row_step) {
    const Key key = keys[i];
    if (key == static_cast<Key>(plan.index_size)) continue;
    if (i > 0 && keys[i - 1] == key) continue;
    for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
         fibre < fibres; fibre += fibre_step) {
      std::int64_t offsets[3];
      calculator.offsets(static_cast<std::uint32_t>(fibre), offsets);
      const auto* from = static_cast<const Vector<Update, V>*>(plan.direct) + offsets[0];
      auto* const to = static_cast<Vector<Update, V>*>(plan.indexed) + offsets[1] +
                       static_cast<std::int64_t>(key) * plan.index_stride;
      Vector<Update, V> result = *to;
      // The next key and position are loaded with this one's values.
      std::uint32_t position = positions[i];
      for (std::int64_t j = i; j < count;) {
        const Vector<Update, V> values = from[position * plan.direct_stride];
        bool is_same = false;
        if (++j < count) {
          is_same = keys[j] == key;
          position = positions[j];
        }
        apply<Update, V>(result, values);
        if (!is_same) break;
      }
      *to = result;
    }
  }
}

// Makes the writes of the indices that have their position's slot. T is a word.
template <class T>
__global__ void __launch_bounds__(kThreads)
    index_slots_kernel(const __grid_constant__ IndexingPlan plan,
                       const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t fibres,
                       std::uint32_t count, const std::uint32_t* slots) {
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const std::int64_t fibre_step = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; i < count;
       i += row_step) {
    const std::int64_t position = position_of(plan, load_index(plan, i * plan.indices_stride));
    if (!is_inside(plan, position)) continue;
    if (slots[position] != static_cast<std::uint32_t>(i) + 1) continue;
    for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
         fibre < fibres; fibre += fibre_step) {
      std::int64_t offsets[3];
      calculator.offsets(static_cast<std::uint32_t>(fibre), offsets);
      static_cast<T*>(plan.indexed)[offsets[1] + position * plan.index_stride] =
          static_cast<const T*>(plan.direct)[offsets[0] + i * plan.direct_stride];
    }
  }
}

// Calls f(plan, fibres, blocks, threads) for the fibres of `plan` in pieces of fewer than 2^31.
template <class F>
void for_fibres(const IndexingPlan& plan, std::int64_t count, int element_bytes, const F& f) {
  const std::int64_t begin[3] = {};
  for_each_piece(
      plan.fibres,
      [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
        IndexingPlan part = plan;
        part.direct = static_cast<char*>(plan.direct) + offsets[0] * element_bytes;
        part.indexed = static_cast<char*>(plan.indexed) + offsets[1] * element_bytes;
        // Threads are side by side along the fibres if these are closer than the elements of one,
        // else along the indices.
        const bool has_columns = piece.strides[0][1] < plan.index_stride;
        const std::int64_t first = has_columns ? piece.numel : count;
        int threads = 1;
        while (threads < kThreads && threads < first) threads *= 2;
        const int wide = has_columns ? threads : kThreads / threads;
        const int rows = kThreads / wide;
        const std::int64_t row_blocks = (count + rows - 1) / rows;
        const std::int64_t fibre_blocks = (piece.numel + wide - 1) / wide;
        const dim3 blocks(static_cast<unsigned>(row_blocks < kMaxBlocks ? row_blocks : kMaxBlocks),
                          static_cast<unsigned>(fibre_blocks < 65535 ? fibre_blocks : 65535));
        f(part, piece, blocks, dim3(static_cast<unsigned>(wide), static_cast<unsigned>(rows)));
      },
      begin);
}

// Elements of a wide access.
template <class Update>
constexpr int kWide = 16 / static_cast<int>(sizeof(typename Update::Element));

// Makes the plan count vectors of V elements, if the fibres are neighbours in both operands and
// every row begins and ends on a vector. Returns false otherwise.
template <int V>
bool widen(IndexingPlan& plan) {
  StridedPlan<3>& fibres = plan.fibres;
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  };
  if (fibres.ndim != 1 || fibres.strides[0][0] != 1 || fibres.strides[0][1] != 1 ||
      fibres.sizes[0] % V != 0 || plan.direct_stride % V != 0 || plan.index_stride % V != 0 ||
      !is_aligned(plan.direct) || !is_aligned(plan.indexed)) {
    return false;
  }
  fibres.sizes[0] /= V;
  fibres.numel /= V;
  plan.direct_stride /= V;
  plan.index_stride /= V;
  return true;
}

template <class Update, int V>
void launch_runs(void* stream, const IndexingPlan& plan, std::uint32_t count,
                 const PositionSort& sort) {
  constexpr int kBytes = V * static_cast<int>(sizeof(typename Update::Element));
  for_fibres(plan, count, kBytes,
             [&](const IndexingPlan& part, const StridedPlan<3>& piece, dim3 blocks, dim3 threads) {
               sort.visit([&](auto*, auto*, auto* keys, const std::uint32_t* positions) {
                 using Key = std::remove_const_t<std::remove_pointer_t<decltype(keys)>>;
                 launch("index_scatter", stream, blocks, threads, 0,
                        index_runs_kernel<Update, Key, V>, part, OffsetCalculator<3>(piece),
                        static_cast<std::uint32_t>(piece.numel), count, keys, positions);
               });
             });
}

// Sorts the indices of a plan by the positions that they name.
void sort_indices(void* stream, const IndexingPlan& plan, const ScatterKeys& keys,
                  const PositionSort& sort) {
  if (!is_short_index(plan)) return sort_writes(stream, keys, sort);
  sort.visit([&](auto*, auto*, auto* sorted_keys, std::uint32_t* sorted) {
    if constexpr (sizeof(*sorted_keys) == sizeof(std::uint32_t)) {
      sort_short_index(stream, plan, sorted_keys, sorted);
    }
  });
}

bool uses_slots(const IndexingPlan& plan, ScatterMode mode) {
  return mode == ScatterMode::replace && has_slots(plan.fibre_length, plan.index_size);
}

}  // namespace

std::size_t index_scatter_bytes(const IndexingPlan& plan, ScatterMode mode) {
  if (is_atomic(mode, plan.dtype)) return 0;
  if (uses_slots(plan, mode)) return slot_bytes(plan.index_size);
  return PositionSort(plan.fibre_length, plan.index_size, nullptr).bytes();
}

void index_scatter(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch) {
  if (is_atomic(mode, plan.dtype)) {
    scatter_atomic(stream, plan);
    return;
  }
  const auto count = static_cast<std::uint32_t>(plan.fibre_length);
  StridedPlan<3> indices;
  indices.ndim = 1;
  indices.numel = count;
  indices.sizes[0] = count;
  indices.strides[0][2] = plan.indices_stride;
  const ScatterKeys keys{plan, OffsetCalculator<3>(indices), 1, plan.index_size, count};
  if (uses_slots(plan, mode)) {
    auto* const slots = static_cast<std::uint32_t*>(scratch);
    claim_slots(stream, keys, slots);
    dispatch_word(plan.element_bytes, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_fibres(
          plan, count, plan.element_bytes,
          [&](const IndexingPlan& part, const StridedPlan<3>& piece, dim3 blocks, dim3 threads) {
            launch("index_scatter", stream, blocks, threads, 0, index_slots_kernel<T>, part,
                   OffsetCalculator<3>(piece), static_cast<std::uint32_t>(piece.numel), count,
                   slots);
          });
    });
    return;
  }
  const PositionSort sort(count, plan.index_size, scratch);
  sort_indices(stream, plan, keys, sort);
  if (has_index_rows(plan)) {
    sort.visit([&](auto*, auto*, auto* sorted_keys, const std::uint32_t* sorted) {
      if constexpr (sizeof(*sorted_keys) == sizeof(std::uint32_t)) {
        index_rows(stream, plan, mode, sorted_keys, sorted);
      }
    });
    return;
  }
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    constexpr int V = kWide<Update>;
    IndexingPlan vectors = plan;
    if (V > 1 && widen<V>(vectors)) {
      launch_runs<Update, V>(stream, vectors, count, sort);
    } else {
      launch_runs<Update, 1>(stream, plan, count, sort);
    }
  });
}

}  // namespace gantry::kernels::cuda
