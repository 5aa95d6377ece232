#include "collectives/reduction_passes.hpp"

#include <algorithm>
#include <vector>

namespace gantry {

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
  return inputs <= kMost || (dtype != DType::f16 && dtype != DType::bf16);
}

void reduce_in_passes(const kernels::Target& target, const Reduction& how, void* out,
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

void reduce_items_in_passes(const kernels::Target& target, const Reduction& how,
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
