#include <gantry/core/dtype.hpp>

#include <array>
#include <locale>
#include <sstream>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/core/scalar.hpp>

namespace gantry {

namespace {

struct Names {
  std::string_view own;
  std::string_view torch;
};

constexpr std::array<Names, kDTypeCount> kNames{{
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, torch, ...) {text, torch},
#include <gantry/core/dtypes.def>
}};

}  // namespace

std::string_view name(DType dtype) noexcept { return kNames[static_cast<std::size_t>(dtype)].own; }

std::string_view torch_name(DType dtype) noexcept {
  return kNames[static_cast<std::size_t>(dtype)].torch;
}

DType parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].own == text) return static_cast<DType>(i);
  }
  std::string all;
  for (const Names& names : kNames) all.append(names.own).push_back(' ');
  throw DTypeError("Expected one of " + all + "as dtype, but got '" + std::string(text) + "'");
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

namespace detail {

void throw_does_not_compute(DType dtype) {
  throw DTypeError("gantry does not compute with " + std::string(name(dtype)) +
                   "; cast it with to()");
}

void throw_not_convertible(const Scalar& value, std::string_view type) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // not the program's
  text << "value cannot be converted to type " << type << " without overflow, got " << value;
  throw InvalidArgument(text.str());
}

void throw_too_large(std::uint64_t value) {
  throw InvalidArgument("Scalar: expected an integer of at most 9223372036854775807, but got " +
                        std::to_string(value));
}

}  // namespace detail

DType Scalar::default_dtype() const noexcept {
  switch (category_) {
    case DTypeCategory::boolean:
      return DType::bool_;
    case DTypeCategory::integral:
      return DType::i64;
    case DTypeCategory::floating:
      return DType::f32;
  }
  __builtin_unreachable();
}

std::ostream& operator<<(std::ostream& out, const Scalar& scalar) {
  switch (scalar.category()) {
    case DTypeCategory::boolean:
      return out << (scalar.to<bool>() ? "true" : "false");
    case DTypeCategory::integral:
      return out << scalar.to<std::int64_t>();
    case DTypeCategory::floating:
      return out << scalar.to<double>();
  }
  __builtin_unreachable();
}

}  // namespace gantry
