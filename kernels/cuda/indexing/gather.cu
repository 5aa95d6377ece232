#include "kernels/impl/gather.inl"

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/gather_rows.hpp"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// Positions that a thread has in flight: first their indices, then their elements.
constexpr int kInFlight = 4;

template <class Index>
__device__ void load_indices(const IndexingPlan& plan, const std::int64_t (&offsets)[kInFlight][3],
                             std::int64_t (&indices)[kInFlight]) {
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    indices[u] = static_cast<const Index*>(plan.indices)[offsets[u][2]];
  }
}

// The elements of several rows at one position, whose index they share: thread `i` takes position
// i % positions of the rows i / positions + k groups, k < kInFlight. `row` is the outermost dim.
struct SharedRows {
  FastDivisor positions;
  std::uint32_t groups = 0;
  std::uint32_t rows = 0;
  std::int64_t direct_stride = 0;
  std::int64_t indexed_stride = 0;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const __grid_constant__ IndexingPlan plan,
                       const __grid_constant__ OffsetCalculator<3> calculator,
                       const __grid_constant__ SharedRows shared, std::uint32_t count) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    const std::uint32_t first = shared.positions.divide(static_cast<std::uint32_t>(i));
    std::int64_t offsets[3];
    calculator.offsets(static_cast<std::uint32_t>(i) - first * shared.positions.divisor, offsets);
    const std::int64_t index = load_index(plan, offsets[2]);
    const std::int64_t position = position_of(plan, index);
    const bool inside = is_inside(plan, position);
    const T* from = static_cast<const T*>(plan.indexed) + offsets[1];
    T elements[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const std::uint32_t row = first + k * shared.groups;
      elements[k] = T{};
      if (inside && row < shared.rows) {
        elements[k] = from[position * plan.index_stride + row * shared.indexed_stride];
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const std::uint32_t row = first + k * shared.groups;
      if (row < shared.rows) {
        static_cast<T*>(plan.direct)[offsets[0] + row * shared.direct_stride] = elements[k];
      }
    }
    if (!inside) report_fault(plan, index);
  }
}

// Gathers rows that share their indices and returns true; else does nothing.
template <class T>
bool gather_shared_rows(void* stream, const IndexingPlan& plan, const StridedPlan<3>& piece) {
  const int outer = piece.ndim - 1;
  const std::int64_t rows = piece.sizes[outer];
  if (outer == 0 || piece.strides[outer][2] != 0 || rows < kInFlight) return false;
  StridedPlan<3> inner = piece;
  --inner.ndim;
  inner.numel /= rows;
  SharedRows shared;
  shared.positions = FastDivisor(static_cast<std::uint32_t>(inner.numel));
  shared.groups = static_cast<std::uint32_t>((rows + kInFlight - 1) / kInFlight);
  shared.rows = static_cast<std::uint32_t>(rows);
  shared.direct_stride = piece.strides[outer][0];
  shared.indexed_stride = piece.strides[outer][1];
  const std::int64_t count = inner.numel * shared.groups;
  if (count >= std::int64_t{1} << 31) return false;
  launch("gather", stream, blocks_for(count), kThreads, 0, gather_rows_kernel<T>, plan,
         OffsetCalculator<3>(inner), shared, static_cast<std::uint32_t>(count));
  return true;
}

// Writes 0 where an index is out of range.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ IndexingPlan plan,
                  const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kInFlight * kThreads);
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (kInFlight * kThreads) + threadIdx.x;
  for (; i < count; i += step) {
    std::int64_t offsets[kInFlight][3];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      // Behind the end the last position is read again, and not written.
      const std::int64_t at = i + u * kThreads < count ? i + u * kThreads : count - 1;
      calculator.offsets(static_cast<std::uint32_t>(at), offsets[u]);
    }
    std::int64_t indices[kInFlight];
    if (plan.is_wide) {
      load_indices<std::int64_t>(plan, offsets, indices);
    } else {
      load_indices<std::int32_t>(plan, offsets, indices);
    }
    T elements[kInFlight];
    bool inside[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const std::int64_t position = position_of(plan, indices[u]);
      inside[u] = is_inside(plan, position);
      elements[u] =
          inside[u]
              ? static_cast<const T*>(plan.indexed)[offsets[u][1] + position * plan.index_stride]
              : T{};
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (i + u * kThreads >= count) break;
      static_cast<T*>(plan.direct)[offsets[u][0]] = elements[u];
      if (!inside[u]) report_fault(plan, indices[u]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    index_offsets_kernel(const __grid_constant__ OffsetsPlan plan,
                         const __grid_constant__ OffsetCalculator<3> calculator,
                         std::uint32_t count) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t offsets[3];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    plan.out[offsets[0]] = offset_of_terms(
        plan, offsets,
        [](const IndexingPlan& term, std::int64_t index) { report_fault(term, index); });
  }
}

}  // namespace

void index_offsets(void* stream, const OffsetsPlan& plan) {
  const std::int64_t begin[3] = {};
  for_each_piece(
      plan.positions,
      [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
        OffsetsPlan part = plan;
        part.out += offsets[0];
        for (int k = 0; k < plan.count; ++k) {
          IndexingPlan& term = part.terms[k];
          term.indices = indices_from(term, offsets[k + 1]);
        }
        launch("index_offsets", stream, blocks_for(piece.numel), kThreads, 0, index_offsets_kernel,
               part, OffsetCalculator<3>(piece), static_cast<std::uint32_t>(piece.numel));
      },
      begin);
}

void gather(void* stream, const IndexingPlan& plan) {
  if (gather_along_rows(stream, plan) || gather_whole_rows(stream, plan)) return;
  dispatch_word(plan.element_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t begin[3] = {};
    for_each_piece(
        plan.positions,
        [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
          const IndexingPlan part = plan_from(plan, offsets);
          if (gather_shared_rows<T>(stream, part, piece)) return;
          launch("gather", stream, blocks_for((piece.numel + kInFlight - 1) / kInFlight), kThreads,
                 0, gather_kernel<T>, part, OffsetCalculator<3>(piece),
                 static_cast<std::uint32_t>(piece.numel));
        },
        begin);
  });
}

}  // namespace gantry::kernels::cuda
