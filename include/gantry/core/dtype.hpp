#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include <gantry/core/export.hpp>
#include <gantry/core/float16.hpp>
#include <gantry/core/macros.hpp>

namespace gantry {

/// Element type of a tensor.
enum class DType : std::uint8_t {
  bool_,  ///< one byte, 0 or 1
  u8,     ///< unsigned, 8 bits
  i8,     ///< signed, 8 bits
  i16,    ///< signed, 16 bits
  i32,    ///< signed, 32 bits
  i64,    ///< signed, 64 bits
  f16,    ///< IEEE binary16
  bf16,   ///< bfloat16: the upper half of an f32
  f32,    ///< IEEE binary32
  f64,    ///< IEEE binary64
};

/// Number of element types.
inline constexpr int kDTypeCount = 10;

/// Short name of the element type.
/// @{
inline constexpr DType bool_ = DType::bool_;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i8 = DType::i8;
inline constexpr DType i16 = DType::i16;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
/// @}

/// Category used by type promotion: a higher category wins over a lower one.
enum class DTypeCategory : std::uint8_t {
  boolean,   ///< bool
  integral,  ///< u8, i8, i16, i32, i64
  floating,  ///< f16, bf16, f32, f64
};

/// Bytes per element.
[[nodiscard]] GANTRY_HD constexpr std::size_t element_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::bool_:
    case DType::u8:
    case DType::i8:
      return 1;
    case DType::i16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}

/// Category of `dtype`.
[[nodiscard]] GANTRY_HD constexpr DTypeCategory category(DType dtype) noexcept {
  return dtype == DType::bool_ ? DTypeCategory::boolean
         : dtype <= DType::i64 ? DTypeCategory::integral
                               : DTypeCategory::floating;
}

/// True for f16, bf16, f32 and f64.
[[nodiscard]] GANTRY_HD constexpr bool is_floating_point(DType dtype) noexcept {
  return category(dtype) == DTypeCategory::floating;
}

/// Short name as in the enumeration: "bool", "u8", …, "f64".
[[nodiscard]] GANTRY_API std::string_view name(DType dtype) noexcept;
/// Name as PyTorch's error texts spell it: "Bool", "Byte", "Char", "Short", "Int", "Long", "Half",
/// "BFloat16", "Float", "Double".
[[nodiscard]] GANTRY_API std::string_view torch_name(DType dtype) noexcept;
/// Parses a short name ("f32", "bool"). Throws: DTypeError for any other text.
[[nodiscard]] GANTRY_API DType parse_dtype(std::string_view text);

/// Writes the short name.
GANTRY_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// Maps a C++ type to its DType: `dtype_of<float> == DType::f32`.
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, bool>)
    return DType::bool_;
  else if constexpr (std::is_same_v<T, float16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T> && sizeof(T) == 1)
    return DType::u8;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 1)
    return DType::i8;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 2)
    return DType::i16;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 4)
    return DType::i32;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 8)
    return DType::i64;
  else
    static_assert(sizeof(T) == 0, "gantry has no element type for this C++ type");
}();

/// Tag by which `dispatch` passes a C++ type to a function.
template <class T>
struct TypeTag {
  /// The C++ type.
  using type = T;
};

/// Calls `f(TypeTag<T>{})` with the C++ type of `dtype` and returns its result.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bool_:
      return f(TypeTag<bool>{});
    case DType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DType::i8:
      return f(TypeTag<std::int8_t>{});
    case DType::i16:
      return f(TypeTag<std::int16_t>{});
    case DType::i32:
      return f(TypeTag<std::int32_t>{});
    case DType::i64:
      return f(TypeTag<std::int64_t>{});
    case DType::f16:
      return f(TypeTag<float16>{});
    case DType::bf16:
      return f(TypeTag<bfloat16>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f64:
      return f(TypeTag<double>{});
  }
  __builtin_unreachable();
}

}  // namespace gantry
