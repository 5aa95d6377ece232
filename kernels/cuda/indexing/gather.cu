#include "kernels/impl/gather.inl"

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ IndexingPlan plan,
                  const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t count) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t offsets[3];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    std::int64_t index;
    if (!gather_element<T>(plan, offsets, index)) report_fault(plan, index);
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
  dispatch_word(plan.element_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t begin[3] = {};
    for_each_piece(
        plan.positions,
        [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
          launch("gather", stream, blocks_for(piece.numel), kThreads, 0, gather_kernel<T>,
                 plan_from(plan, offsets), OffsetCalculator<3>(piece),
                 static_cast<std::uint32_t>(piece.numel));
        },
        begin);
  });
}

}  // namespace gantry::kernels::cuda
