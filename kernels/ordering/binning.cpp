#include "kernels/ordering/binning.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/ordering/binning_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

CountPlan make_count_plan(const TensorRef& counts, const TensorRef& in) {
  CountPlan plan;
  plan.dtype = in.dtype;
  plan.in = in.data;
  plan.n = in.numel();
  plan.counts = static_cast<std::int64_t*>(counts.data);
  plan.bins = counts.numel();
  return plan;
}

}  // namespace

void searchsorted(const Target& target, const TensorRef& out, const TensorRef& sequences,
                  const TensorRef& values, bool right) {
  if (out.numel() == 0) return;
  SearchPlan plan;
  plan.dtype = sequences.dtype;
  plan.sequences = sequences.data;
  plan.values = values.data;
  plan.out = out.data;
  plan.length = sequences.sizes[sequences.ndim - 1];
  plan.count = values.numel();
  plan.per_sequence = sequences.ndim == 1 ? plan.count : values.sizes[values.ndim - 1];
  plan.is_wide = out.dtype == DType::i64;
  plan.right = right;
  submit(
      "searchsorted", target, {&out, &sequences, &values}, [plan] { host::searchsorted(plan); },
      [&](void* stream) { cuda::searchsorted(stream, plan); });
}

void count_values(const Target& target, const TensorRef& counts, const TensorRef& in) {
  if (in.numel() == 0) return;
  const CountPlan plan = make_count_plan(counts, in);
  submit(
      "count_values", target, {&counts, &in}, [plan] { host::count_values(plan); },
      [&](void* stream) { cuda::count_values(stream, plan); });
}

void count_bins(const Target& target, const TensorRef& counts, const TensorRef& in,
                const Scalar& low, const Scalar& high) {
  if (in.numel() == 0) return;
  CountPlan plan = make_count_plan(counts, in);
  if (is_floating_point(in.dtype)) {
    plan.low = low.to<double>();
    plan.high = high.to<double>();
  } else {
    plan.whole_low = low.to<std::int64_t>();
    plan.whole_high = high.to<std::int64_t>();
  }
  submit(
      "count_bins", target, {&counts, &in}, [plan] { host::count_bins(plan); },
      [&](void* stream) { cuda::count_bins(stream, plan); });
}

void run_starts(const Target& target, const TensorRef& starts, const TensorRef& inverse,
                const TensorRef& runs, const TensorRef& order) {
  RunPlan plan;
  plan.runs = static_cast<const std::int64_t*>(runs.data);
  plan.order = static_cast<const std::int64_t*>(order.data);
  plan.starts = static_cast<std::int64_t*>(starts.data);
  plan.inverse = static_cast<std::int64_t*>(inverse.data);
  plan.n = runs.numel();
  if (plan.n == 0) return;
  submit(
      {"run_starts", 2}, target, {&starts, &inverse, &runs, &order},
      [plan] { host::run_starts(plan); }, [&](void* stream) { cuda::run_starts(stream, plan); });
}

void first_of_runs(const Target& target, const TensorRef& out, const TensorRef& count,
                   const TensorRef& in) {
  FirstsPlan plan;
  plan.dtype = in.dtype;
  plan.in = in.data;
  plan.out = out.data;
  plan.count = static_cast<std::int64_t*>(count.data);
  plan.n = in.numel();
  submit(
      KernelName::moving("first_of_runs", 2), target, {&out, &count, &in},
      [plan] { host::first_of_runs(plan); },
      [&](void* stream) {
        const Scratch scratch(target, cuda::first_of_runs_bytes(plan));
        cuda::first_of_runs(stream, plan, scratch.data());
      });
}

}  // namespace gantry::kernels
