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

}  // namespace gantry::kernels
