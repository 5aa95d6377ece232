#include "kernels/reductions/reduce.hpp"

#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/direct_call.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/layout/copy.hpp"
#include "kernels/reductions/accumulator.hpp"
#include "kernels/reductions/fibre_plan.hpp"
#include "kernels/reductions/reduce_plan.hpp"
#include "kernels/reductions/reduction_names.hpp"
#include "kernels/reductions/wide_sum.inl"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

// The identity of `op`, which is the result of an empty reduction, for `dtype`.
Scalar empty_result(Reduction op, DType dtype, double divisor) {
  switch (op) {
    case Reduction::sum:
    case Reduction::any:
    case Reduction::norm2:
    case Reduction::sum_abs:
    case Reduction::count_nonzero:
      return divisor == 1 ? Scalar(0) : Scalar(0.0 / divisor);
    case Reduction::prod:
    case Reduction::all:
      return divisor == 1 ? Scalar(1) : Scalar(1.0 / divisor);
    case Reduction::min:
    case Reduction::max:
    case Reduction::log_sum_exp:
    case Reduction::variance:  // these do not ask
    case Reduction::deviation:
    case Reduction::argmax:
    case Reduction::argmin:
      break;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  if (is_floating_point(dtype)) return op == Reduction::min ? infinity : -infinity;
  return dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      return Scalar(0);
    } else {
      using Limits = std::numeric_limits<T>;
      return Scalar(op == Reduction::min ? Limits::max() : Limits::lowest());
    }
  });
}

// True if `in` must be converted before it is reduced into `out`.
bool needs_conversion(Reduction op, DType out, DType in) {
  return accumulator_dtype(op, out) != accumulator_dtype(op, in);
}

TensorRef contiguous_like(const TensorRef& tensor, DType dtype, void* data) {
  TensorRef result = tensor;
  result.data = data;
  result.dtype = dtype;
  std::int64_t stride = 1;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    result.strides[d] = stride;
    stride *= tensor.sizes[d];
  }
  return result;
}

// Bytes of a chunk's result.
std::size_t result_bytes(const ReducePlan& plan) {
  switch (plan.op) {
    case Reduction::variance:
    case Reduction::deviation:
      return 4 * element_size(plan.accumulator);
    case Reduction::log_sum_exp:
      return 2 * element_size(plan.accumulator);
    case Reduction::argmax:
    case Reduction::argmin:
      return 2 * sizeof(std::int64_t);
    default:
      return element_size(plan.accumulator);
  }
}

// True if there is nothing to write.
bool is_empty(const TensorRef& out) { return out.numel() == 0; }

}  // namespace

void reduce_on_gpu(const Target& target, void* stream, const ReducePlan& plan) {
  ReducePlan pass = plan;
  Scratch partials;  // the previous pass's results
  while (pass.chunks > 1) {
    const std::int64_t count = pass.outputs * pass.chunks;
    const std::size_t wide = is_repeated(pass.op, pass.accumulator) ? sizeof(WideSum) : 0;
    Scratch next(target, static_cast<std::size_t>(count) * (wide + result_bytes(pass)));
    if (wide > 0) pass.wide_partials = static_cast<WideSum*>(next.data());
    pass.partials = static_cast<std::byte*>(next.data()) + static_cast<std::size_t>(count) * wide;
    const bool by_column = pass.is_column_wise();
    pass.partial_output_stride = by_column ? 1 : pass.chunks;
    pass.partial_chunk_stride = by_column ? pass.outputs : 1;
    pass.merges = pass.chunks <= kReduceChunk || has_state(pass.op);
    Scratch counters;
    if (pass.merges) {
      pass.counters = merge_counters(target, cuda::merge_counter_count(pass), counters);
    }
    cuda::reduce(stream, pass);
    if (pass.merges) return;
    pass = make_merge_plan(pass);
    partials = std::move(next);
  }
  cuda::reduce(stream, pass);
}

void reduce(const Target& target, Reduction op, const TensorRef& out, const TensorRef& in,
            double divisor) {
  if (is_empty(out)) return;
  check_dtypes(name_of(op), {&out, &in});
  if (in.numel() == 0) {
    fill(target, out, empty_result(op, out.dtype, divisor));
    return;
  }
  TensorRef source = in;
  Scratch converted;
  if (needs_conversion(op, out.dtype, in.dtype)) {
    const DType dtype = accumulator_dtype(op, out.dtype);
    converted = Scratch(target, static_cast<std::size_t>(in.numel()) * element_size(dtype));
    source = contiguous_like(in, dtype, converted.data());
    copy(target, source, in);
  }
  const ReducePlan plan = make_reduce_plan(op, out, source, divisor);
  if (is_direct_call(target)) return host::reduce(plan);
  submit(
      name_of(op), target, {&out, &source}, [plan] { host::reduce(plan); },
      [&](void* stream) { reduce_on_gpu(target, stream, plan); });
}

void arg_reduce(const Target& target, bool largest, const TensorRef& values,
                const TensorRef& indices, const TensorRef& in, int dim) {
  if (is_empty(indices)) return;
  const FibrePlan plan = make_fibre_plan(values, in, dim);
  const Fibres index_fibres = fibres_like(indices, in, dim);
  submit(
      {largest ? "argmax" : "argmin", 2}, target, {&values, &indices, &in},
      [largest, plan, index_fibres] { host::arg_reduce(largest, plan, index_fibres); },
      [&](void* stream) {
        ReducePlan states =
            make_reduce_plan(largest ? Reduction::argmax : Reduction::argmin, indices, in, 1);
        states.second_out = values.data;
        if (!cuda::has_long_rows(states)) return reduce_on_gpu(target, stream, states);
        cuda::ArgPartials partials;
        Scratch candidates;
        Scratch counters;
        partials.chunk_length = cuda::arg_chunk_length(plan);
        partials.chunks = (plan.length + partials.chunk_length - 1) / partials.chunk_length;
        if (partials.chunks > 1) {
          candidates = Scratch(target, plan.count * partials.chunks * sizeof(std::int64_t));
          partials.candidates = static_cast<std::int64_t*>(candidates.data());
          partials.counters = merge_counters(target, plan.count, counters);
        }
        cuda::arg_reduce(stream, largest, plan, index_fibres, partials);
      });
}

void scan(const Target& target, ScanOp op, const TensorRef& out, const TensorRef& in, int dim) {
  if (is_empty(out)) return;
  TensorRef source = in;
  Scratch copied;
  if (out.data == in.data && restarts(op, in.dtype)) {  // a restart reads elements once more
    copied = Scratch(target, static_cast<std::size_t>(in.numel()) * element_size(in.dtype));
    source = contiguous_like(in, in.dtype, copied.data());
    copy(target, source, in);
  }
  const FibrePlan plan = make_fibre_plan(out, source, dim);
  submit(
      name_of(op), target, {&out, &source}, [op, plan] { host::scan(op, plan); },
      [&](void* stream) {
        const Scratch scratch(target, cuda::scan_scratch_bytes(plan));
        cuda::scan(stream, op, plan, scratch.data());
      });
}

void softmax(const Target& target, bool logarithm, const TensorRef& out, const TensorRef& in,
             int dim) {
  if (is_empty(out)) return;
  const FibrePlan plan = make_fibre_plan(out, in, dim);
  submit(
      logarithm ? "log_softmax" : "softmax", target, {&out, &in},
      [logarithm, plan] { host::softmax(logarithm, plan); },
      [&](void* stream) {
        const Scratch scratch(target, cuda::softmax_scratch_bytes(plan));
        cuda::softmax(stream, logarithm, plan, scratch.data());
      });
}

}  // namespace gantry::kernels
