#include "kernels/line_plans.hpp"

#include <algorithm>
#include <cstdlib>

namespace gantry::kernels {

Lines lines_like(const TensorRef& tensor, const TensorRef& in, int dim) {
  int order[kMaxDims];
  int count = 0;
  for (int d = 0; d < in.ndim; ++d) {
    if (d != dim) order[count++] = d;
  }
  std::stable_sort(order, order + count,
                   [&](int a, int b) { return std::abs(in.strides[a]) > std::abs(in.strides[b]); });
  Lines result;
  result.data = tensor.data;
  result.stride = in.ndim > 0 ? tensor.strides[dim] : 0;
  for (int i = 0; i < count; ++i) {
    result.lines.sizes[i] = in.sizes[order[i]];
    result.lines.strides[i] = tensor.strides[order[i]];
  }
  result.lines.ndim = count;
  return result;
}

LinePlan make_line_plan(const TensorRef& out, const TensorRef& in, int dim) {
  LinePlan plan;
  plan.dtype = in.dtype;
  plan.in = lines_like(in, in, dim);
  plan.out = lines_like(out, in, dim);
  plan.count = plan.in.lines.count();
  plan.length = in.ndim > 0 ? in.sizes[dim] : 1;
  return plan;
}

}  // namespace gantry::kernels
