#include <gantry/core/promotion.hpp>

#include <cstddef>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

// True for 8-bit floats.
bool is_float8(DType dtype) { return is_floating_point(dtype) && !computes(dtype); }

// Throws DTypeError, in PyTorch's words, unless the dtypes promote.
void check_promotion(DType a, DType b) {
  const auto refuse = [&](const char* types) {
    throw DTypeError(std::string("Promotion for ") + types +
                     " is not supported, attempted to promote " + std::string(torch_name(a)) +
                     " and " + std::string(torch_name(b)));
  };
  if (is_float8(a) || is_float8(b)) refuse("Float8 Types");
  if (is_floating_point(a) || is_floating_point(b)) return;
  if (!computes(a) || !computes(b)) refuse("uint16, uint32, uint64 types");
}

}  // namespace

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  check_promotion(a, b);
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  const std::size_t size_a = element_size(a);
  const std::size_t size_b = element_size(b);
  if (size_a != size_b) return size_a > size_b ? a : b;
  // Two dtypes of one category and size, neither of which holds the other: u8 and i8, f16 and bf16.
  return is_floating_point(a) ? DType::f32 : DType::i16;
}

bool can_cast(DType from, DType to) noexcept { return category(from) <= category(to); }

}  // namespace gantry
