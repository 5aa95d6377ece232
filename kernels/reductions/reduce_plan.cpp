#include "kernels/reductions/reduce_plan.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace gantry::kernels {

bool ReducePlan::is_column_wise() const {
  return kept.ndim > 0 && reduced.ndim == 1 &&
         std::abs(kept.strides[kept.ndim - 1]) < std::abs(reduced.strides[0]);
}

namespace {

// True if the elements of `dims` lie side by side in their order.
bool is_dense(const StridedIndex& dims) {
  std::int64_t stride = 1;
  for (int d = dims.ndim - 1; d >= 0; --d) {
    if (dims.strides[d] != stride) return false;
    stride *= dims.sizes[d];
  }
  return true;
}

}  // namespace

DType accumulator_dtype(Reduction op, DType dtype) {
  switch (op) {
    case Reduction::any:
    case Reduction::all:
    case Reduction::count_nonzero:
      return DType::i64;
    case Reduction::sum:
    case Reduction::prod:
    case Reduction::min:
    case Reduction::max:
    case Reduction::norm2:
    case Reduction::sum_abs:
    case Reduction::variance:
    case Reduction::deviation:
    case Reduction::log_sum_exp:
    case Reduction::argmax:
    case Reduction::argmin:
      break;
  }
  if (!is_floating_point(dtype)) return DType::i64;
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

ReducePlan make_reduce_plan(Reduction op, const TensorRef& out, const TensorRef& in,
                            double divisor) {
  ReducePlan plan;
  plan.op = op;
  plan.in_dtype = in.dtype;
  plan.accumulator = accumulator_dtype(op, in.dtype);
  plan.out_dtype = out.dtype;
  plan.divisor = divisor;
  plan.in = in.data;
  plan.out = out.data;

  int kept_dims[kMaxDims];
  int kept_count = 0;
  for (int d = 0; d < in.ndim; ++d) {
    if (out.sizes[d] == 1) {
      plan.reduced.append(in.sizes[d], in.strides[d]);
    } else {
      kept_dims[kept_count++] = d;
    }
  }
  std::stable_sort(kept_dims, kept_dims + kept_count,
                   [&](int a, int b) { return std::abs(in.strides[a]) > std::abs(in.strides[b]); });
  for (int i = 0; i < kept_count; ++i) {
    const int d = kept_dims[i];
    const int last = plan.kept.ndim - 1;
    // Two dims that are dense in both the input and the output become one.
    if (last >= 0 && plan.kept.strides[last] == in.sizes[d] * in.strides[d] &&
        plan.kept_out.strides[last] == in.sizes[d] * out.strides[d]) {
      plan.kept.sizes[last] *= in.sizes[d];
      plan.kept_out.sizes[last] *= in.sizes[d];
      plan.kept.strides[last] = in.strides[d];
      plan.kept_out.strides[last] = out.strides[d];
      continue;
    }
    const int at = plan.kept.ndim;
    plan.kept.sizes[at] = plan.kept_out.sizes[at] = in.sizes[d];
    plan.kept.strides[at] = in.strides[d];
    plan.kept_out.strides[at] = out.strides[d];
    ++plan.kept.ndim;
    ++plan.kept_out.ndim;
  }
  plan.outputs = plan.kept.count();
  plan.has_dense_outputs = is_dense(plan.kept_out);
  plan.length = plan.reduced.count();
  plan.total_length = plan.length;
  plan.chunks = (plan.length + kReduceChunk - 1) / kReduceChunk;
  plan.source = {plan.in, plan.in_dtype, plan.kept, plan.reduced, plan.length};
  return plan;
}

ReducePlan make_merge_plan(const ReducePlan& pass) {
  ReducePlan plan = pass;
  plan.reads_partials = true;
  plan.in_dtype = pass.accumulator;
  plan.in = pass.partials;
  plan.wide_in = pass.wide_partials;
  std::int64_t stride = pass.partial_output_stride;
  for (int d = plan.kept.ndim - 1; d >= 0; --d) {
    plan.kept.strides[d] = stride;
    stride *= plan.kept.sizes[d];
  }
  plan.reduced = {};
  plan.reduced.append(pass.chunks, pass.partial_chunk_stride);
  plan.length = pass.chunks;
  plan.chunks = (plan.length + kReduceChunk - 1) / kReduceChunk;
  plan.partials = nullptr;
  plan.wide_partials = nullptr;
  return plan;
}

}  // namespace gantry::kernels
