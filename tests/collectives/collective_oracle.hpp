// The expected results of collectives, bit by bit, in the simplest form.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::testing {

using Bytes = std::vector<std::byte>;

/// 64 bits that look random.
inline std::uint64_t scrambled(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebULL;
  return bits ^ bits >> 31;
}

/// `count` elements that rank `rank` contributes: any process can make them. Floating ones have
/// NaN, infinities, zeros of both signs and denormals among them.
inline Bytes make_elements(int rank, std::int64_t count, DType dtype, std::uint32_t seed) {
  const std::size_t width = element_size(dtype);
  Bytes bytes(static_cast<std::size_t>(count) * width);
  const std::uint64_t key = (std::uint64_t{seed} << 32 | static_cast<std::uint32_t>(rank)) + 1;
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < count; ++i) {
      T value{};
      const std::uint64_t bits = scrambled(key * 0x9e3779b97f4a7c15ULL + std::uint64_t(i));
      const auto draw = static_cast<std::uint32_t>(bits >> 40);
      if constexpr (std::is_same_v<T, bool>) {
        value = draw % 3 == 0;
      } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(bits);
      } else {
        // Of every thousand elements some are special, on this rank or another.
        switch (draw % 1000) {
          case 0:
            value = static_cast<T>(std::nanf("7"));
            break;
          case 1:
            value = static_cast<T>(INFINITY);
            break;
          case 2:
            value = static_cast<T>(-INFINITY);
            break;
          case 3:
          case 4:
            value = static_cast<T>(-0.0f);
            break;
          case 5:
            value = static_cast<T>(0.0f);
            break;
          case 6:
            value = static_cast<T>(1e-41f);
            break;
          default:
            value = static_cast<T>(static_cast<float>(static_cast<std::int32_t>(bits)) /
                                   static_cast<float>(1 << (draw % 31)));
        }
      }
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, &value, width);
    }
  });
  return bytes;
}

template <class Acc>
Acc combine_elements(ReduceOp op, Acc a, Acc b) {
  constexpr bool kFloating = std::is_floating_point_v<Acc>;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      if constexpr (kFloating) return a + b;
      return static_cast<Acc>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    case ReduceOp::prod:
      if constexpr (kFloating) return a * b;
      return static_cast<Acc>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    case ReduceOp::min:
      if constexpr (kFloating) {
        if (std::isnan(a)) return a;
        if (std::isnan(b)) return b;
        if (a == b) return std::signbit(a) ? a : b;
      }
      return a < b ? a : b;
    case ReduceOp::max:
      if constexpr (kFloating) {
        if (std::isnan(a)) return a;
        if (std::isnan(b)) return b;
        if (a == b) return std::signbit(a) ? b : a;
      }
      return a > b ? a : b;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      if constexpr (!kFloating) {
        return op == ReduceOp::band ? (a & b) : op == ReduceOp::bor ? (a | b) : (a ^ b);
      }
      return a;
  }
  __builtin_unreachable();
}

/// The rank-ordered reduction of all ranks' inputs.
inline Bytes reduce_elements(ReduceOp op, DType dtype, const std::vector<Bytes>& inputs,
                             double scale = 1) {
  Bytes result(inputs.front().size());
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr bool kFloating = is_floating_point(dtype_of<T>);
    using Integer = std::conditional_t<std::is_same_v<T, std::uint64_t>, T, std::int64_t>;
    using Acc = std::conditional_t<std::is_same_v<T, double>, double,
                                   std::conditional_t<kFloating, float, Integer>>;
    for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
      Acc sum{};
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        T element;
        std::memcpy(static_cast<void*>(&element), inputs[rank].data() + at, sizeof(T));
        auto value = static_cast<Acc>(element);
        if (kFloating && scale != 1) {
          volatile Acc product = value * static_cast<Acc>(scale);
          value = product;
        }
        sum = rank == 0 ? value : combine_elements(op, sum, value);
        if constexpr (std::is_same_v<T, bool>) {
          // Booleans add as or and multiply as and.
          sum = sum != 0 ? 1 : 0;
        }
      }
      if constexpr (kFloating) {
        if (op == ReduceOp::avg) sum = sum / static_cast<Acc>(inputs.size());
        if (std::isnan(sum)) sum = std::numeric_limits<Acc>::quiet_NaN();
      }
      const T rounded = static_cast<T>(sum);
      std::memcpy(result.data() + at, &rounded, sizeof(T));
    }
  });
  return result;
}

/// A tensor on `device` that holds `bytes`. `skew`: its first element lies so many elements behind
/// the beginning of its storage.
inline Tensor tensor_of(const Bytes& bytes, DType dtype, Device device, std::int64_t skew = 0) {
  const auto count = static_cast<std::int64_t>(bytes.size() / element_size(dtype));
  const Tensor host = empty({count}, {.dtype = dtype});
  if (!bytes.empty()) std::memcpy(host.data(), bytes.data(), bytes.size());
  Tensor result = empty({count + skew}, {.dtype = dtype, .device = device}).narrow(0, skew, count);
  result.copy_(host);
  return result;
}

inline Bytes bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.cpu().contiguous();
  Bytes bytes(host.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), host.data(), bytes.size());
  return bytes;
}

}  // namespace gantry::testing
