#include "kernels/peers/nary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/peers/nary_plan.hpp"

namespace gantry::kernels {

namespace {

bool is_bitwise(NaryOp op) {
  switch (op) {
    case NaryOp::band:
    case NaryOp::bor:
    case NaryOp::bxor:
      return true;
    case NaryOp::sum:
    case NaryOp::prod:
    case NaryOp::min:
    case NaryOp::max:
    case NaryOp::min_unsigned:
    case NaryOp::max_unsigned:
      return false;
  }
  return false;
}

void check(NaryOp op, DType dtype, std::size_t inputs, std::size_t outs) {
  constexpr auto kMost = static_cast<std::size_t>(kMaxNaryInputs);
  if (inputs == 0 || inputs > kMost) {
    throw InvalidArgument(fmt::format("nary: expected 1 to {} inputs, but got {}", kMost, inputs));
  }
  if (outs == 0 || outs > kMost) {
    throw InvalidArgument(fmt::format("nary: expected 1 to {} outputs, but got {}", kMost, outs));
  }
  if (is_bitwise(op) && is_floating_point(dtype)) {
    throw DTypeError(
        fmt::format("nary: expected an integer or bool dtype for a bitwise operation, but got {}",
                    name(dtype)));
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

// One item of an n-ary operation.
struct ItemArrays {
  std::span<void* const> outs;
  std::span<const void* const> inputs;
  std::int64_t count;
};

std::vector<sanitizer::Use> uses_of(std::span<const ItemArrays> items, DType dtype) {
  std::vector<sanitizer::Use> uses;
  for (const ItemArrays& item : items) {
    for (const void* out : item.outs) uses.push_back(array_use(out, item.count, dtype, true));
    for (const void* input : item.inputs) {
      uses.push_back(array_use(input, item.count, dtype, false));
    }
  }
  return uses;
}

}  // namespace

void nary(const Target& target, NaryOp op, void* out, std::span<const void* const> inputs,
          std::int64_t count, DType dtype, double divisor) {
  nary(target, op, std::span<void* const>(&out, 1), inputs, count, dtype, divisor);
}

void nary(const Target& target, NaryOp op, std::span<void* const> outs,
          std::span<const void* const> inputs, std::int64_t count, DType dtype, double divisor) {
  check(op, dtype, inputs.size(), outs.size());
  if (count == 0) return;
  NaryPlan plan;
  const NaryKernel reduction = nary_kernel(op, dtype);
  plan.op = reduction.op;
  plan.dtype = reduction.dtype;
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
  std::optional<CheckedSubmission> checked;
  if (sanitizer::is_on()) [[unlikely]] {
    checked.emplace("nary", target, uses_of(std::array{ItemArrays{outs, inputs, count}}, dtype));
  }
  const std::array arrays{ArrayOperands{outs.size() + inputs.size(), count, dtype}};
  submit(
      {"nary", arrays}, target, {}, [plan] { host::nary(plan); },
      [&](void* stream) { cuda::nary(stream, plan); });
  if (checked) checked->commit();
}

void nary_batched(const Target& target, NaryOp op, std::span<const NaryItem> items,
                  std::span<const void* const> inputs, DType dtype, double divisor) {
  if (items.empty()) return;
  const std::size_t each = inputs.size() / items.size();
  check(op, dtype, each, 1);
  NaryBatchPlan plan;
  const NaryKernel reduction = nary_kernel(op, dtype);
  plan.op = reduction.op;
  plan.dtype = reduction.dtype;
  plan.input_count = static_cast<std::int32_t>(each);
  plan.divisor = divisor;
  plan.items = items;
  plan.inputs = inputs;
  std::optional<CheckedSubmission> checked;
  if (sanitizer::is_on()) [[unlikely]] {
    std::vector<ItemArrays> arrays;
    for (std::size_t r = 0; r < items.size(); ++r) {
      arrays.push_back(
          {std::span(&items[r].out, 1), inputs.subspan(r * each, each), items[r].count});
    }
    checked.emplace("nary", target, uses_of(arrays, dtype));
  }
  std::vector<ArrayOperands> arrays;
  if (has_observer(kOpObservers)) [[unlikely]] {
    for (const NaryItem& item : items) arrays.push_back({each + 1, item.count, dtype});
  }
  const KernelName kernel("nary", arrays);
  if (!is_simulated(target)) {
    submit(
        kernel, target, {}, [&plan] { host::nary_batched(plan); },
        [&](void* stream) { cuda::nary_batched(stream, plan); });
    if (checked) checked->commit();
    return;
  }
  for (std::size_t r = 0; r < items.size(); ++r) {
    const void* out = items[r].out;
    check_sim_arrays(target, inputs.subspan(r * each, each), items[r].count, dtype);
    check_sim_arrays(target, std::span(&out, 1), items[r].count, dtype);
  }
  // The task outlives the caller's arrays.
  submit(
      kernel, target, {},
      [plan, kept_items = std::vector(items.begin(), items.end()),
       kept_inputs = std::vector(inputs.begin(), inputs.end())] {
        NaryBatchPlan own = plan;
        own.items = kept_items;
        own.inputs = kept_inputs;
        host::nary_batched(own);
      },
      [](void*) {});
  if (checked) checked->commit();
}

}  // namespace gantry::kernels
