#pragma once

#include <concepts>
#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

namespace detail {
template <class T>
concept AtomicNumber = std::same_as<T, std::int32_t> || std::same_as<T, std::uint32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t> || std::same_as<T, float> ||
    std::same_as<T, double>;
}  // namespace detail

/// Adds `value` to `*address` atomically and returns the previous number. For functors of launch()
/// and parallel_for().
///
/// The memory order is relaxed. Floating sums depend on the order of the additions, which differs
/// between runs on a GPU. DTypes: i32, i64, f32, f64, and unsigned integers of 32 and 64 bits.
/// @since 0.3
template <detail::AtomicNumber T>
GANTRY_HD inline T atomic_add(T* address, T value) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 8 && std::integral<T>) {
    return static_cast<T>(atomicAdd(reinterpret_cast<unsigned long long*>(address),
                                    static_cast<unsigned long long>(value)));
  } else {
    return atomicAdd(address, value);
  }
#else
  if constexpr (std::integral<T>) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  } else {
    T before;
    __atomic_load(address, &before, __ATOMIC_RELAXED);
    T after = before + value;
    while (!__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
      after = before + value;
    }
    return before;
  }
#endif
}

}  // namespace gantry
