// The 8-bit floats of the Open Compute Project's specification "OFP8", revision 1.0.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <gantry/core/macros.hpp>

namespace gantry::nccl_api {

// A float of one sign bit, then `kExponent` and `kMantissa` bits. e4m3 has no infinity, and one
// pattern of NaN besides the sign. e5m2 has both, as IEEE's formats.
template <int kExponent, int kMantissa, bool kHasInfinity>
struct Float8 {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  // The pattern of the largest finite number.
  static constexpr std::uint32_t kLargest = kHasInfinity ? (0x7c - 1) : 0x7e;

  std::uint8_t bits = 0;

  GANTRY_HD static float to_float(std::uint8_t bits) {
    const std::uint32_t exponent = (bits & 0x7fu) >> kMantissa;
    const std::uint32_t mantissa = bits & ((1u << kMantissa) - 1);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
    std::uint32_t pattern = 0;
    if ((bits & 0x7fu) > kLargest) {
      const bool is_infinity = kHasInfinity && mantissa == 0;
      pattern = is_infinity ? 0x7f800000u : 0x7fc00000u;
    } else if (exponent != 0) {
      pattern = (exponent - kBias + 127) << 23 | mantissa << (23 - kMantissa);
    } else {
      // A multiple of the smallest number, exact in f32.
      const float value = static_cast<float>(mantissa) * smallest();
      std::memcpy(&pattern, &value, sizeof pattern);
    }
    pattern |= sign;
    float value = 0;
    std::memcpy(&value, &pattern, sizeof value);
    return value;
  }

  // Rounds to nearest, ties to even, and saturates. NaN stays NaN.
  GANTRY_HD static std::uint8_t from_float(float value) {
    std::uint32_t pattern = 0;
    std::memcpy(&pattern, &value, sizeof pattern);
    const std::uint32_t sign = pattern >> 24 & 0x80u;
    pattern &= 0x7fffffffu;
    if (pattern > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    constexpr int kDropped = 23 - kMantissa;
    constexpr std::uint32_t kLeastNormal = static_cast<std::uint32_t>(127 - kBias + 1) << 23;
    std::uint32_t result = 0;
    if (pattern >= kLeastNormal) {
      // A carry out of the mantissa goes to the exponent, as it should.
      const std::uint32_t half = (1u << (kDropped - 1)) - 1 + (pattern >> kDropped & 1u);
      result =
          ((pattern + half) >> kDropped) - (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
    } else {
      float magnitude = 0;
      std::memcpy(&magnitude, &pattern, sizeof magnitude);
      // f32 of this size has whole numbers only, so the sum rounds as asked for.
      constexpr float kWhole = 8388608.0f;
      const float scaled = magnitude / smallest();
      const float rounded = (scaled + kWhole) - kWhole;
      result = static_cast<std::uint32_t>(rounded);
    }
    if (result > kLargest) result = kLargest;
    return static_cast<std::uint8_t>(sign | result);
  }

 private:
  GANTRY_HD static constexpr float smallest() {
    float value = 1;
    for (int i = 0; i < kBias - 1 + kMantissa; ++i) value /= 2;
    return value;
  }
};

using Float8E4m3 = Float8<4, 3, false>;
using Float8E5m2 = Float8<5, 2, true>;

}  // namespace gantry::nccl_api
