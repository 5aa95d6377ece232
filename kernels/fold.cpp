#include "kernels/fold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/fold_plan.hpp"

namespace gantry::kernels {

namespace {

bool is_bitwise(FoldOp op) {
  switch (op) {
    case FoldOp::band:
    case FoldOp::bor:
    case FoldOp::bxor:
      return true;
    case FoldOp::sum:
    case FoldOp::prod:
    case FoldOp::min:
    case FoldOp::max:
      return false;
  }
  return false;
}

void check(FoldOp op, DType dtype, std::size_t inputs, std::size_t outs) {
  constexpr auto kMost = static_cast<std::size_t>(kMaxFoldInputs);
  if (inputs == 0 || inputs > kMost) {
    throw InvalidArgument(fmt::format("fold: 1 to {} inputs expected, but got {}", kMost, inputs));
  }
  if (outs == 0 || outs > kMost) {
    throw InvalidArgument(fmt::format("fold: 1 to {} outputs expected, but got {}", kMost, outs));
  }
  if (is_bitwise(op) && is_floating_point(dtype)) {
    throw DTypeError(fmt::format(
        "fold: bitwise operations expect an integer or bool dtype, but got {}", name(dtype)));
  }
}

bool is_simulated(const Target& target) {
  return !target.is_cpu() && platform() == Platform::simulated;
}

void check_sim_arrays(const Target& target, std::span<const void* const> arrays, std::int64_t count,
                      DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(count) * element_size(dtype);
  for (const void* array : arrays) {
    ::gantry::sim::check_device_access(target.device().index, array, bytes);
  }
}

}  // namespace

void fold(const Target& target, FoldOp op, void* out, std::span<const void* const> inputs,
          std::int64_t count, DType dtype, double divisor) {
  fold(target, op, std::span<void* const>(&out, 1), inputs, count, dtype, divisor);
}

void fold(const Target& target, FoldOp op, std::span<void* const> outs,
          std::span<const void* const> inputs, std::int64_t count, DType dtype, double divisor) {
  check(op, dtype, inputs.size(), outs.size());
  if (count == 0) return;
  FoldPlan plan;
  plan.op = op;
  plan.dtype = dtype;
  plan.input_count = static_cast<std::int32_t>(inputs.size());
  plan.out_count = static_cast<std::int32_t>(outs.size());
  plan.count = count;
  plan.divisor = divisor;
  std::copy(outs.begin(), outs.end(), plan.outs);
  std::copy(inputs.begin(), inputs.end(), plan.inputs);
  if (is_simulated(target)) {
    check_sim_arrays(target, inputs, count, dtype);
    check_sim_arrays(target, std::span<const void* const>(plan.outs, outs.size()), count, dtype);
  }
  submit(
      target, {}, [plan] { host::fold(plan); }, [&](void* stream) { cuda::fold(stream, plan); });
}

void fold_runs(const Target& target, FoldOp op, std::span<const FoldRun> runs,
               std::span<const void* const> inputs, DType dtype, double divisor) {
  if (runs.empty()) return;
  const std::size_t each = inputs.size() / runs.size();
  check(op, dtype, each, 1);
  FoldRunsPlan plan;
  plan.op = op;
  plan.dtype = dtype;
  plan.input_count = static_cast<std::int32_t>(each);
  plan.divisor = divisor;
  plan.runs = runs;
  plan.inputs = inputs;
  if (!is_simulated(target)) {
    submit(
        target, {}, [&plan] { host::fold_runs(plan); },
        [&](void* stream) { cuda::fold_runs(stream, plan); });
    return;
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const void* out = runs[r].out;
    check_sim_arrays(target, inputs.subspan(r * each, each), runs[r].count, dtype);
    check_sim_arrays(target, std::span(&out, 1), runs[r].count, dtype);
  }
  // The task outlives the caller's arrays.
  submit(
      target, {},
      [plan, kept_runs = std::vector(runs.begin(), runs.end()),
       kept_inputs = std::vector(inputs.begin(), inputs.end())] {
        FoldRunsPlan own = plan;
        own.runs = kept_runs;
        own.inputs = kept_inputs;
        host::fold_runs(own);
      },
      [](void*) {});
}

}  // namespace gantry::kernels
