#include "collectives/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <gantry/core/error.hpp>

namespace gantry {

std::string_view name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
  }
  __builtin_unreachable();
}

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << name(op); }

NaryReduction reduction_for(ReduceOp op, DType dtype, int count, std::string_view where) {
  const auto require = [&](bool allowed, std::string_view wanted) {
    if (!allowed) {
      throw DTypeError(
          fmt::format("{}: expected {} for {}, but got {}", where, wanted, name(op), name(dtype)));
    }
  };
  switch (op) {
    case ReduceOp::sum:
      return {kernels::NaryOp::sum, 1};
    case ReduceOp::prod:
      return {kernels::NaryOp::prod, 1};
    case ReduceOp::min:
      return {kernels::NaryOp::min, 1};
    case ReduceOp::max:
      return {kernels::NaryOp::max, 1};
    case ReduceOp::avg:
      require(is_floating_point(dtype), "a floating dtype");
      return {kernels::NaryOp::sum, static_cast<double>(count)};
    case ReduceOp::band:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::band, 1};
    case ReduceOp::bor:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::bor, 1};
    case ReduceOp::bxor:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::bxor, 1};
  }
  __builtin_unreachable();
}

namespace {

constexpr auto kMost = static_cast<std::size_t>(kernels::kMaxNaryInputs);

// Calls pass(first, end, is_last) for each pass: inputs [first, end), behind the partial result
// unless `first` is 0.
template <class Pass>
void for_each_pass(std::size_t inputs, Pass pass) {
  for (std::size_t first = 0; first < inputs;) {
    const std::size_t end = std::min(inputs, first + kMost - (first > 0 ? 1 : 0));
    pass(first, end, end == inputs);
    first = end;
  }
}

}  // namespace

bool fits_passes(DType dtype, std::size_t inputs) {
  return inputs <= kMost || !is_floating_point(dtype) || element_size(dtype) >= 4;
}

void reduce_in_passes(const kernels::Target& target, const NaryReduction& how, void* out,
                      std::span<const void* const> inputs, std::int64_t count, DType dtype) {
  std::vector<const void*> with_partial;
  for_each_pass(inputs.size(), [&](std::size_t first, std::size_t end, bool is_last) {
    std::span<const void* const> part = inputs.subspan(first, end - first);
    if (first > 0) {
      with_partial.assign(1, out);
      with_partial.insert(with_partial.end(), part.begin(), part.end());
      part = with_partial;
    }
    kernels::nary(target, how.op, out, part, count, dtype, is_last ? how.divisor : 1);
  });
}

void reduce_items_in_passes(const kernels::Target& target, const NaryReduction& how,
                            std::span<const kernels::NaryItem> items,
                            std::span<const void* const> inputs, DType dtype) {
  if (items.empty()) return;
  const std::size_t each = inputs.size() / items.size();
  if (each <= kMost) {
    return kernels::nary_batched(target, how.op, items, inputs, dtype, how.divisor);
  }
  std::vector<const void*> part;
  for_each_pass(each, [&](std::size_t first, std::size_t end, bool is_last) {
    part.clear();
    for (std::size_t r = 0; r < items.size(); ++r) {
      if (first > 0) part.push_back(items[r].out);
      for (std::size_t k = first; k < end; ++k) part.push_back(inputs[r * each + k]);
    }
    kernels::nary_batched(target, how.op, items, part, dtype, is_last ? how.divisor : 1);
  });
}

}  // namespace gantry
