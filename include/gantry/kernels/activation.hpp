#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

/// The function that linear() and addmm_activation() apply to each element of the product.
/// @since 0.3
enum class Activation : std::uint8_t {
  none,       ///< x
  relu,       ///< max(x, 0); NaN stays
  gelu_tanh,  ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as gelu_tanh()
};

}  // namespace gantry
