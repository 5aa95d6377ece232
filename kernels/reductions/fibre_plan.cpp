#include "kernels/reductions/fibre_plan.hpp"

#include <algorithm>
#include <cstdlib>

namespace gantry::kernels {

Fibres fibres_like(const TensorRef& tensor, const TensorRef& in, int dim) {
  int order[kMaxDims];
  int count = 0;
  for (int d = 0; d < in.ndim; ++d) {
    if (d != dim) order[count++] = d;
  }
  std::stable_sort(order, order + count,
                   [&](int a, int b) { return std::abs(in.strides[a]) > std::abs(in.strides[b]); });
  Fibres result;
  result.data = tensor.data;
  result.stride = in.ndim > 0 ? tensor.strides[dim] : 0;
  for (int i = 0; i < count; ++i) {
    result.outer.sizes[i] = in.sizes[order[i]];
    result.outer.strides[i] = tensor.strides[order[i]];
  }
  result.outer.ndim = count;
  return result;
}

FibrePlan make_fibre_plan(const TensorRef& out, const TensorRef& in, int dim) {
  FibrePlan plan;
  plan.dtype = in.dtype;
  plan.in = fibres_like(in, in, dim);
  plan.out = fibres_like(out, in, dim);
  plan.count = plan.in.outer.count();
  plan.length = in.ndim > 0 ? in.sizes[dim] : 1;
  return plan;
}

FibrePlan with_merged_dims(const FibrePlan& plan) {
  FibrePlan merged = plan;
  StridedIndex& in = merged.in.outer;
  StridedIndex& out = merged.out.outer;
  in.ndim = 0;
  for (int dim = 0; dim < plan.in.outer.ndim; ++dim) {
    const std::int64_t size = plan.in.outer.sizes[dim];
    const std::int64_t in_stride = plan.in.outer.strides[dim];
    const std::int64_t out_stride = plan.out.outer.strides[dim];
    if (size == 1) continue;
    int at = in.ndim;
    if (at > 0 && in.strides[at - 1] == size * in_stride &&
        out.strides[at - 1] == size * out_stride) {
      in.sizes[--at] *= size;
    } else {
      in.sizes[at] = size;
      ++in.ndim;
    }
    out.sizes[at] = in.sizes[at];
    in.strides[at] = in_stride;
    out.strides[at] = out_stride;
  }
  out.ndim = in.ndim;
  return merged;
}

}  // namespace gantry::kernels
