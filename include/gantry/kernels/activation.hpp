#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

/// The function of a product's elements in linear() and addmm_activation().
enum class Activation : std::uint8_t {
  none,       ///< x
  relu,       ///< max(x, 0); NaN stays
  gelu_tanh,  ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as gelu_tanh()
};

}  // namespace gantry
