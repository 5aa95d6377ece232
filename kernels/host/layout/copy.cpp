#include "kernels/layout/host_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

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

// A row of a triangle: `first` elements of one part, then the elements of the other part.
template <class W>
void triangle_row(W* to, std::int64_t to_stride, const W* from, std::int64_t from_stride,
                  std::int64_t first, std::int64_t columns, bool lower) {
  const std::int64_t begin = lower ? 0 : first;  // of the copied elements
  const std::int64_t count = lower ? first : columns - first;
  copy_row(to + begin * to_stride, to_stride, from + begin * from_stride, from_stride, count);
  const W zero{};
  copy_row(to + (lower ? first : 0) * to_stride, to_stride, &zero, 0, columns - count);
}

// Row by row, for matrices of any number of leading dims.
template <class W>
void triangle_rows(const TensorRef& out, const TensorRef& in, bool lower, std::int64_t diagonal) {
  const int last = out.ndim - 1;
  const std::int64_t columns = out.sizes[last];
  W* to = static_cast<W*>(out.data);
  const W* from = static_cast<const W*>(in.data);
  std::int64_t index[kMaxDims] = {};
  const std::int64_t count = out.numel();
  for (std::int64_t done = 0; done < count; done += columns) {
    const std::int64_t above = index[last - 1] + (lower ? 1 : 0);
    const std::int64_t first =
        std::clamp<std::int64_t>(diagonal > columns ? columns : above + diagonal, 0, columns);
    triangle_row(to, out.strides[last], from, in.strides[last], first, columns, lower);
    for (int dim = last - 1; dim >= 0; --dim) {
      to += out.strides[dim];
      from += in.strides[dim];
      if (++index[dim] < out.sizes[dim]) break;
      to -= out.strides[dim] * out.sizes[dim];
      from -= in.strides[dim] * out.sizes[dim];
      index[dim] = 0;
    }
  }
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
  TensorRef to = out;
  TensorRef from = in;
  const int last = out.ndim - 1;
  if (out.strides[last] != 1 && out.strides[last - 1] == 1) {
    // Rows of the transpose, whose triangle is the other one.
    for (TensorRef* ref : {&to, &from}) {
      std::swap(ref->sizes[last], ref->sizes[last - 1]);
      std::swap(ref->strides[last], ref->strides[last - 1]);
    }
    lower = !lower;
    diagonal = -std::max(diagonal, -INT64_MAX);
  }
  dispatch_words(out.dtype, [&](auto tag) {
    with_fma([&] { triangle_rows<typename decltype(tag)::type>(to, from, lower, diagonal); });
  });
}

}  // namespace gantry::kernels::host
