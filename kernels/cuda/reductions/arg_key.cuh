// Elements as argmax and argmin compare them on the GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/impl/arg_reduce.inl"

namespace gantry::kernels::cuda {

namespace {

// The type as which elements of type T are compared: a number of at most 32 bits where that holds
// T.
template <class T>
using Key = std::conditional_t<is_floating_point(dtype_of<T>) || std::is_same_v<T, std::int64_t>,
                               AccumulatorType<T>, std::int32_t>;

// Makes keys such that the largest is preferred: the smallest of mirrored values is the largest.
// The mirror flips the sign bit of a floating key and every bit of an integer.
template <class T>
struct KeyOf {
  bool largest;

  __device__ Key<T> operator()(T element) const {
    const auto key = static_cast<Key<T>>(element);
    if constexpr (is_floating_point(dtype_of<T>)) {
      return largest ? key : -key;
    } else {
      return largest ? key : ~key;
    }
  }
};

// The key to which every other is preferred, but for its equals.
template <class K>
__device__ K lowest_key() {
  if constexpr (std::is_same_v<K, std::int64_t>) {
    return INT64_MIN;
  } else if constexpr (std::is_same_v<K, std::int32_t>) {
    return INT32_MIN;
  } else {
    return static_cast<K>(-HUGE_VAL);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
