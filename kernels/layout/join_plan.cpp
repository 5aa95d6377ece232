#include "kernels/layout/join_plan.hpp"

#include "kernels/dispatch.hpp"

namespace gantry::kernels {

namespace {

// Bytes of an input's row from which on one kernel is faster than a copy for each input.
constexpr std::int64_t kLeastRow = 64;

// False if the arrays are not of the kind that JoinPlan describes. Counts elements.
bool make_plan(JoinPlan& plan, const TensorRef& out, const std::vector<TensorRef>& inputs,
               int dim) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0;
  if (out.numel() == 0 || !out.is_contiguous() || !is_aligned) return false;
  const auto bytes = static_cast<std::int64_t>(element_size(out.dtype));
  std::int64_t inner = 1;
  for (int d = dim + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  plan.rows = out.numel() / (out.sizes[dim] * inner);
  plan.out = out.data;
  for (const TensorRef& input : inputs) {
    if (input.numel() == 0) continue;
    const std::int64_t length = input.sizes[dim] * inner;
    if (plan.count == JoinPlan::kMostInputs || !input.is_contiguous() ||
        length * bytes < kLeastRow) {
      return false;
    }
    plan.inputs[plan.count] = input.data;
    plan.starts[plan.count + 1] = plan.starts[plan.count] + length;
    ++plan.count;
  }
  return plan.count > 1;
}

// Counts the widest words that divide every row and address.
void widen(JoinPlan& plan, int bytes) {
  auto all = reinterpret_cast<std::uintptr_t>(plan.out);
  for (int k = 0; k < plan.count; ++k) {
    all |= reinterpret_cast<std::uintptr_t>(plan.inputs[k]);
    all |= static_cast<std::uintptr_t>(plan.starts[k + 1]) * static_cast<std::uintptr_t>(bytes);
  }
  plan.word_bytes = bytes;
  while (plan.word_bytes < 16 && all % (2 * static_cast<std::uintptr_t>(plan.word_bytes)) == 0) {
    plan.word_bytes *= 2;
    for (std::int64_t& start : plan.starts) start /= 2;
  }
}

}  // namespace

bool join(const Target& target, const TensorRef& out, const std::vector<TensorRef>& inputs,
          int dim) {
  JoinPlan plan;
  if (!make_plan(plan, out, inputs, dim)) return false;
  widen(plan, static_cast<int>(element_size(out.dtype)));
  if (plan.rows * plan.length() >= std::int64_t{1} << 31) return false;
  std::vector<const TensorRef*> operands = {&out};
  for (const TensorRef& input : inputs) operands.push_back(&input);
  submit(
      KernelName::moving("cat"), target, std::span<const TensorRef* const>(operands),
      [plan] { host::join(plan); }, [&](void* stream) { cuda::join(stream, plan); });
  return true;
}

}  // namespace gantry::kernels
