#include "kernels/layout/host_copy.hpp"

#include <cstring>

#include "kernels/host/launch.hpp"
#include "kernels/host/layout/transpose.hpp"
#include "kernels/impl/copy.inl"

namespace gantry::kernels::host {

namespace {

// Copies words of one size if that is a transposition; else returns false.
bool try_transpose(const TensorRef& out, const TensorRef& in) {
  const std::int64_t* const strides[2] = {out.strides, in.strides};
  const StridedPlan<2> plan = make_plan<2>(out.ndim, out.sizes, strides);
  const int dim = transposed_dim(plan);
  if (dim == 0) return false;
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    copy_transposed(plan, dim, static_cast<W*>(out.data), static_cast<const W*>(in.data));
  });
  return true;
}

}  // namespace

void copy(const TensorRef& out, const TensorRef& in) {
  if (out.dtype == in.dtype && out.is_contiguous() && in.is_contiguous()) {
    std::memmove(out.data, in.data,
                 static_cast<std::size_t>(out.numel()) * element_size(out.dtype));
    return;
  }
  if (out.dtype == in.dtype && try_transpose(out, in)) return;
  run_copy(Loop{}, out, in);
}

void fill(const TensorRef& out, const Scalar& value) { run_fill(Loop{}, out, value); }

void arange(const TensorRef& out, const Scalar& start, const Scalar& step, std::int64_t first) {
  run_arange(Loop{}, out, start, step, first);
}

void triangle(const TensorRef& out, const TensorRef& in, bool lower, std::int64_t diagonal) {
  run_triangle(Loop{}, out, in, lower, diagonal);
}

}  // namespace gantry::kernels::host
