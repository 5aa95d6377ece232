#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include <gantry/core/export.hpp>
#include <gantry/core/float16.hpp>
#include <gantry/core/float8.hpp>
#include <gantry/core/macros.hpp>

namespace gantry {

/// Element type of a tensor. The numbers are stored in files and sent between processes.
///
/// u16, u32, u64, f8e4m3 and f8e5m2 are data: tensors of them are made, moved, cast and saved, and
/// collectives reduce them. No other operation computes with them.
/// @since 0.1
enum class DType : std::uint8_t {
  bool_ = 0,    ///< one byte, 0 or 1
  u8 = 1,       ///< unsigned, 8 bits
  i8 = 2,       ///< signed, 8 bits
  i16 = 3,      ///< signed, 16 bits
  i32 = 4,      ///< signed, 32 bits
  i64 = 5,      ///< signed, 64 bits
  f16 = 6,      ///< IEEE binary16
  bf16 = 7,     ///< bfloat16: the upper half of an f32
  f32 = 8,      ///< IEEE binary32
  f64 = 9,      ///< IEEE binary64
  u16 = 10,     ///< unsigned, 16 bits
  u32 = 11,     ///< unsigned, 32 bits
  u64 = 12,     ///< unsigned, 64 bits
  f8e4m3 = 13,  ///< OFP8 E4M3, without infinity: PyTorch's float8_e4m3fn
  f8e5m2 = 14,  ///< OFP8 E5M2: PyTorch's float8_e5m2
};

/// Number of element types.
inline constexpr int kDTypeCount = 15;

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
inline constexpr DType u16 = DType::u16;
inline constexpr DType u32 = DType::u32;
inline constexpr DType u64 = DType::u64;
inline constexpr DType f8e4m3 = DType::f8e4m3;
inline constexpr DType f8e5m2 = DType::f8e5m2;
/// @}
/// @since 0.1

/// Category used by type promotion: a higher category wins over a lower one.
/// @since 0.1
enum class DTypeCategory : std::uint8_t {
  boolean,   ///< bool
  integral,  ///< u8, i8, i16, i32, i64, u16, u32, u64
  floating,  ///< f16, bf16, f32, f64, f8e4m3, f8e5m2
};

namespace detail {

// The enumeration has docstrings, so the table does not make it. Both agree.
inline constexpr int kDTypeRows = 0
#define GANTRY_DTYPE(...) +1
#include <gantry/core/dtypes.def>
    ;
static_assert(kDTypeRows == kDTypeCount);
#define GANTRY_DTYPE(dtype, number, ...) \
  static_assert(static_cast<int>(DType::dtype) == number && number < kDTypeCount);
#include <gantry/core/dtypes.def>

}  // namespace detail

/// Bytes per element.
/// @since 0.1
[[nodiscard]] GANTRY_HD constexpr std::size_t element_size(DType dtype) noexcept {
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, ...) \
  case DType::dtype:                                 \
    return sizeof(type);
#include <gantry/core/dtypes.def>
  }
  return 0;
}

/// Category of `dtype`.
/// @since 0.1
[[nodiscard]] GANTRY_HD constexpr DTypeCategory category(DType dtype) noexcept {
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, category, ...) \
  case DType::dtype:                                           \
    return DTypeCategory::category;
#include <gantry/core/dtypes.def>
  }
  return DTypeCategory::boolean;
}

/// True unless `dtype` is for data alone: u16, u32, u64, f8e4m3 and f8e5m2.
/// @since 0.3
[[nodiscard]] GANTRY_HD constexpr bool computes(DType dtype) noexcept {
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, ...) \
  case DType::dtype:                                                     \
    return computes;
#include <gantry/core/dtypes.def>
  }
  return false;
}

/// True for f16, bf16, f32, f64, f8e4m3 and f8e5m2.
/// @since 0.1
[[nodiscard]] GANTRY_HD constexpr bool is_floating_point(DType dtype) noexcept {
  return category(dtype) == DTypeCategory::floating;
}

/// Short name as in the enumeration: "bool", "u8", …, "f8e5m2".
/// @since 0.1
[[nodiscard]] GANTRY_API std::string_view name(DType dtype) noexcept;
/// Name as PyTorch's error texts spell it: "Bool", "Byte", "Char", "Short", "Int", "Long", "Half",
/// "BFloat16", "Float", "Double", "UInt16", "UInt32", "UInt64", "Float8_e4m3fn", "Float8_e5m2".
/// @since 0.1
[[nodiscard]] GANTRY_API std::string_view torch_name(DType dtype) noexcept;
/// Parses a short name ("f32", "bool"). Throws: DTypeError for any other text.
/// @since 0.1
[[nodiscard]] GANTRY_API DType parse_dtype(std::string_view text);

/// Writes the short name.
GANTRY_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// Tag by which `dispatch` and `dispatch_any` pass a C++ type to a function.
/// @since 0.1
template <class T>
struct TypeTag {
  /// The C++ type.
  using type = T;
};

namespace detail {
// True for one type, and for integers of one size and sign: `long` and `long long` are one dtype.
template <class T, class Row>
inline constexpr bool kIsStoredAs = std::is_same_v<T, Row> ||
                                    (std::is_integral_v<T> && std::is_integral_v<Row> &&
                                     !std::is_same_v<T, bool> && !std::is_same_v<Row, bool> &&
                                     sizeof(T) == sizeof(Row) &&
                                     std::is_signed_v<T> == std::is_signed_v<Row>);
}  // namespace detail

/// Maps a C++ type to its DType: `dtype_of<float> == DType::f32`.
template <class T>
inline constexpr DType dtype_of = [] {
#define GANTRY_DTYPE(dtype, number, text, type, ...) \
  if constexpr (detail::kIsStoredAs<T, type>)        \
    return DType::dtype;                             \
  else
#include <gantry/core/dtypes.def>
  static_assert(sizeof(T) == 0, "gantry has no element type for this C++ type");
}();

namespace detail {
// Throws DTypeError.
[[noreturn]] GANTRY_API void throw_does_not_compute(DType dtype);
}  // namespace detail

/// Calls `f(TypeTag<T>{})` with the C++ type of `dtype` and returns its result. It is for code that
/// computes, so `f` is compiled for the dtypes that do. Throws: DTypeError for others.
/// @since 0.1
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, ...) \
  case DType::dtype:                                                     \
    if constexpr (computes) return f(TypeTag<type>{});                   \
    break;
#include <gantry/core/dtypes.def>
  }
  detail::throw_does_not_compute(dtype);
}

/// dispatch() over every dtype, for code that moves or converts elements.
/// @since 0.3
template <class F>
decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, ...) \
  case DType::dtype:                                 \
    return f(TypeTag<type>{});
#include <gantry/core/dtypes.def>
  }
  __builtin_unreachable();
}

}  // namespace gantry
