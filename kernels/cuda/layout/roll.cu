// Rolled rows, in one launch: vectors of the output from single elements of the input.
#include "kernels/layout/roll.hpp"

#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/impl/raw.inl"

namespace gantry::kernels::cuda {

namespace {

// The element that moves to an index.
template <class W>
struct RolledElement {
  const W* in;
  FastDivisor length;
  std::int64_t front;
  std::int64_t rest;  // the length without the front

  __device__ ComputeType<W> operator()(std::int64_t index) const {
    const auto at = static_cast<std::uint32_t>(index);
    const std::uint32_t column = at - length.divide(at) * length.divisor;
    return static_cast<ComputeType<W>>(in[column < front ? index + rest : index - front]);
  }
};

}  // namespace

void roll_rows(void* stream, const RollPlan& plan) {
  TensorRef out;
  out.data = plan.out;
  out.dtype = plan.dtype;
  out.ndim = 1;
  out.sizes[0] = plan.numel;
  out.strides[0] = 1;
  const FastDivisor length(static_cast<std::uint32_t>(plan.length));
  dispatch_words(plan.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    Loop(stream).run<W>("roll",
                        RolledElement<W>{static_cast<const W*>(plan.in), length, plan.front,
                                         plan.length - plan.front},
                        out, index_input(out));
  });
}

}  // namespace gantry::kernels::cuda
