// The updates of scatter, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/indexing/indexing.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels {

// Replaces the destination. T is a raw word of the element's size.
template <class T>
struct ScatterReplace {
  using Element = T;
  GANTRY_HD static T apply(T /*old*/, T value) { return value; }
};

// Adds to the destination. Every addition rounds, as in a loop of +=.
template <class T>
struct ScatterAdd {
  using Element = T;
  GANTRY_HD static T apply(T old, T value) {
    using Acc = AccumulatorType<T>;
    return from_accumulator<T>(wrapping_add(static_cast<Acc>(old), static_cast<Acc>(value)));
  }
};

// Multiplies the destination.
template <class T>
struct ScatterMultiply {
  using Element = T;
  GANTRY_HD static T apply(T old, T value) {
    using Acc = AccumulatorType<T>;
    return from_accumulator<T>(wrapping_multiply(static_cast<Acc>(old), static_cast<Acc>(value)));
  }
};

// Keeps the larger or the smaller one; a NaN stays.
template <class T, bool kLargest>
struct ScatterExtreme {
  using Element = T;
  GANTRY_HD static T apply(T old, T value) {
    using Acc = AccumulatorType<T>;
    const Acc a = static_cast<Acc>(old);
    const Acc b = static_cast<Acc>(value);
    if (a != a) return from_accumulator<T>(a);
    const bool takes = b != b || (kLargest ? b > a : b < a);
    return from_accumulator<T>(takes ? b : a);
  }
};

// True for updates whose order matters: no replacement, and not of integers.
template <class Update>
inline constexpr bool kRounds =
    !std::is_integral_v<typename Update::Element> && sizeof(typename Update::Element) >= 2 &&
    sizeof(typename Update::Element) <= 8;

// A 16-byte word.
struct alignas(16) Word16 {
  std::uint64_t halves[2];
};

// Calls f(TypeTag<word>) for the raw word of `bytes` bytes.
template <class F>
void dispatch_word(int bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    case 8:
      return f(TypeTag<std::uint64_t>{});
    case 16:
      return f(TypeTag<Word16>{});
  }
  __builtin_unreachable();
}

// Calls f(TypeTag<Update>) with the scatter's update.
template <class F>
void dispatch_scatter(ScatterMode mode, DType dtype, int element_bytes, F&& f) {
  if (mode == ScatterMode::replace) {
    dispatch_word(element_bytes,
                  [&](auto tag) { f(TypeTag<ScatterReplace<typename decltype(tag)::type>>{}); });
    return;
  }
  dispatch_stored(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (mode) {
      case ScatterMode::replace:
        return;
      case ScatterMode::add:
        return f(TypeTag<ScatterAdd<T>>{});
      case ScatterMode::multiply:
        return f(TypeTag<ScatterMultiply<T>>{});
      case ScatterMode::largest:
        return f(TypeTag<ScatterExtreme<T, true>>{});
      case ScatterMode::smallest:
        return f(TypeTag<ScatterExtreme<T, false>>{});
    }
  });
}

}  // namespace gantry::kernels
