// Elements as raw words. Kernels that only move elements are compiled for four types instead of
// one for each dtype.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/input.hpp"

namespace gantry::kernels {

// Calls f(TypeTag<W>{}) with the unsigned word of `dtype`'s size.
template <class F>
void dispatch_words(DType dtype, const F& f) {
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

// The raw word of `number` as an element of `dtype`.
template <class W>
W number_word(const Scalar& number, DType dtype) {
  return dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = number.category() == DTypeCategory::floating
                        ? convert<T>(number.to<double>())
                        : convert<T>(number.to<std::int64_t>());
    W word = 0;
    if constexpr (sizeof(T) == sizeof(W)) memcpy(&word, &value, sizeof word);
    return word;
  });
}

}  // namespace gantry::kernels
