#include <gantry/core/promotion.hpp>

#include <cstddef>

namespace gantry {

DType promote_types(DType a, DType b) noexcept {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  const std::size_t size_a = element_size(a);
  const std::size_t size_b = element_size(b);
  if (size_a != size_b) return size_a > size_b ? a : b;
  // Two dtypes of one category and size, neither of which holds the other: u8 and i8, f16 and bf16.
  return is_floating_point(a) ? DType::f32 : DType::i16;
}

bool can_cast(DType from, DType to) noexcept { return category(from) <= category(to); }

}  // namespace gantry
