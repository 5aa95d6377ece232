// Keys of elements: unsigned integers that have the elements' order.
#pragma once

#include <cstdint>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

namespace gantry::kernels {

// Note [Element order]
// Sorting, selection, searches and cumulative extrema compare keys. A key is an unsigned integer of
// the element's size:
//  - NaN is larger than every number, and all NaNs are equal;
//  - -0 equals 0;
//  - a non-zero bool byte is 1.
// `largest_first` complements the keys. Equal elements keep the order of their positions. Results
// are thus the same on the CPU, the simulator and the GPU. Kernels depend on the element size only:
// the dtype is data.

enum class KeyKind : std::uint8_t { boolean, unsigned_integer, signed_integer, floating };

// The keys of one dtype, whose elements have the bits of a U. A POD.
template <class U>
struct KeyOrder {
  KeyKind kind = KeyKind::unsigned_integer;
  U infinity = 0;  // bits of +infinity
  U flip = 0;      // all ones: largest first
  U nan = 0;       // key of NaN

  static constexpr U kSign = static_cast<U>(U(1) << (sizeof(U) * 8 - 1));

  GANTRY_HD U key(U bits) const {
    switch (kind) {
      case KeyKind::boolean:
        return key_as<KeyKind::boolean>(bits);
      case KeyKind::unsigned_integer:
        return key_as<KeyKind::unsigned_integer>(bits);
      case KeyKind::signed_integer:
        return key_as<KeyKind::signed_integer>(bits);
      case KeyKind::floating:
        return key_as<KeyKind::floating>(bits);
    }
    return bits;
  }

  // The key, for a dtype whose `kind` is kKind.
  template <KeyKind kKind>
  GANTRY_HD U key_as(U bits) const {
    if constexpr (kKind == KeyKind::boolean) bits = bits != 0;
    if constexpr (kKind == KeyKind::signed_integer) bits = static_cast<U>(bits ^ kSign);
    if constexpr (kKind == KeyKind::floating) {
      // Without a branch on the sign, which no processor predicts.
      const U magnitude = static_cast<U>(bits & static_cast<U>(~kSign));
      const U number = magnitude == 0 ? U(0) : bits;
      const U negative = static_cast<U>(U(0) - static_cast<U>(number >> (sizeof(U) * 8 - 1)));
      const U key = static_cast<U>(number ^ (negative | kSign) ^ flip);
      return magnitude > infinity ? nan : key;
    }
    return static_cast<U>(bits ^ flip);
  }

  // The element to store: unchanged, except that a bool byte becomes 0 or 1.
  GANTRY_HD U stored(U bits) const {
    return kind == KeyKind::boolean ? static_cast<U>(bits != 0) : bits;
  }

  // True if the key belongs to one stored element only. Zeros and NaNs share theirs.
  GANTRY_HD bool is_exact(U key) const {
    return kind != KeyKind::floating || (key != nan && key != static_cast<U>(kSign ^ flip));
  }
  // The stored element of an exact key.
  GANTRY_HD U element(U key) const {
    key = static_cast<U>(key ^ flip);
    if (kind == KeyKind::signed_integer) return static_cast<U>(key ^ kSign);
    if (kind != KeyKind::floating) return key;
    return static_cast<U>((key & kSign) != 0 ? key ^ kSign : ~key);
  }

  // Bits of a key that can differ.
  [[nodiscard]] int bits() const {
    return kind == KeyKind::boolean && flip == 0 ? 1 : static_cast<int>(sizeof(U)) * 8;
  }
};

// The keys of `dtype`. U has its size.
template <class U>
[[nodiscard]] KeyOrder<U> make_key_order(DType dtype, bool largest_first) {
  KeyOrder<U> order;
  order.kind = dtype == DType::bool_      ? KeyKind::boolean
               : dtype == DType::u8       ? KeyKind::unsigned_integer
               : is_floating_point(dtype) ? KeyKind::floating
                                          : KeyKind::signed_integer;
  order.flip = largest_first ? static_cast<U>(~U(0)) : U(0);
  order.nan = static_cast<U>(~order.flip);
  const std::uint64_t infinity = dtype == DType::f16    ? 0x7c00u
                                 : dtype == DType::bf16 ? 0x7f80u
                                 : dtype == DType::f32  ? 0x7f800000u
                                                        : 0x7ff0000000000000u;
  order.infinity = static_cast<U>(infinity);
  return order;
}

// Calls f(key_of) with the function from bits to keys, compiled for the kind of `order`. For loops
// on the host.
template <class U, class F>
void with_key_function(const KeyOrder<U>& order, const F& f) {
  if constexpr (sizeof(U) == 1) {
    if (order.kind == KeyKind::boolean) {
      return f([order](U bits) { return order.template key_as<KeyKind::boolean>(bits); });
    }
    if (order.kind == KeyKind::unsigned_integer) {
      return f([order](U bits) { return order.template key_as<KeyKind::unsigned_integer>(bits); });
    }
  } else if (order.kind == KeyKind::floating) {
    return f([order](U bits) { return order.template key_as<KeyKind::floating>(bits); });
  }
  f([order](U bits) { return order.template key_as<KeyKind::signed_integer>(bits); });
}

// Calls f(TypeTag<U>{}) with the unsigned integer of `dtype`'s size.
template <class F>
void dispatch_keys(DType dtype, const F& f) {
  switch (element_size(dtype)) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    case 8:
      return f(TypeTag<std::uint64_t>{});
  }
}

}  // namespace gantry::kernels
