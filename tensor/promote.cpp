#include <gantry/tensor/promote.hpp>

#include <algorithm>
#include <array>
#include <optional>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

using MaybeType = std::optional<DType>;

MaybeType promote_present(MaybeType a, MaybeType b) {
  if (!a) return b;
  if (!b) return a;
  return promote_types(*a, *b);
}

// The dtype of two priorities: `lower` counts only if its category is higher.
MaybeType combine(MaybeType higher, MaybeType lower) {
  if (!higher) return lower;
  if (!lower) return higher;
  return category(*lower) > category(*higher) ? promote_types(*higher, *lower) : *higher;
}

}  // namespace

DType result_type(std::span<const Operand> operands) {
  MaybeType with_dims;
  MaybeType zero_dim;
  MaybeType number;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) {
      number = promote_present(number, operand.number().default_dtype());
    } else {
      MaybeType& group = operand.tensor().dim() > 0 ? with_dims : zero_dim;
      group = promote_present(group, operand.tensor().dtype());
    }
  }
  const MaybeType result = combine(with_dims, combine(zero_dim, number));
  if (!result) throw InvalidArgument("result_type: expected at least one operand, but got none");
  return *result;
}

DType result_type(const Operand& a, const Operand& b) {
  return result_type(std::array<Operand, 2>{a, b});
}

}  // namespace gantry
