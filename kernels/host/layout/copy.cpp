#include "kernels/layout/host_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/host/launch.hpp"
#include "kernels/host/layout/transpose.hpp"
#include "kernels/impl/copy.inl"

namespace gantry::kernels::host {

namespace {

// `n` words. Rows of either direction are vector code.
template <class W>
void copy_row(W* __restrict__ to, std::int64_t to_stride, const W* __restrict__ from,
              std::int64_t from_stride, std::int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    std::copy_n(from, n, to);
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill_n(to, n, *from);
  } else if (to_stride == 1 && from_stride == -1) {
    const W* const first = from - (n - 1);
    for (std::int64_t i = 0; i < n; ++i) to[i] = first[n - 1 - i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Copies as `plan` says, row by row.
template <class W>
void copy_rows(const StridedPlan<2>& plan, W* out, const W* in) {
  std::int64_t index[kMaxDims] = {};
  for (std::int64_t done = 0; done < plan.numel; done += plan.sizes[0]) {
    copy_row(out, plan.strides[0][0], in, plan.strides[0][1], plan.sizes[0]);
    for (int dim = 1; dim < plan.ndim; ++dim) {
      out += plan.strides[dim][0];
      in += plan.strides[dim][1];
      if (++index[dim] < plan.sizes[dim]) break;
      out -= plan.strides[dim][0] * plan.sizes[dim];
      in -= plan.strides[dim][1] * plan.sizes[dim];
      index[dim] = 0;
    }
  }
}

// Copies words of one size.
void copy_words(const TensorRef& out, const TensorRef& in) {
  const std::int64_t* const strides[2] = {out.strides, in.strides};
  const StridedPlan<2> plan = make_plan<2>(out.ndim, out.sizes, strides);
  const int dim = transposed_dim(plan);
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    W* const to = static_cast<W*>(out.data);
    const W* const from = static_cast<const W*>(in.data);
    if (dim > 0) return copy_transposed(plan, dim, to, from);
    with_fma([&] { copy_rows(plan, to, from); });
  });
}

}  // namespace

void copy(const TensorRef& out, const TensorRef& in) {
  if (out.dtype == in.dtype && out.is_contiguous() && in.is_contiguous()) {
    std::memmove(out.data, in.data,
                 static_cast<std::size_t>(out.numel()) * element_size(out.dtype));
    return;
  }
  if (out.dtype == in.dtype) return copy_words(out, in);
  if (!computes(out.dtype) || !computes(in.dtype)) return cast(out, in);
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
