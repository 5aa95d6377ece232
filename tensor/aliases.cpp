#include <gantry/tensor/aliases.hpp>

#include <gantry/core/error.hpp>

#include "tensor/check.hpp"

namespace gantry {

Tensor positive(const Tensor& self) {
  detail::check_defined("positive", "self", self);
  if (self.dtype() == DType::bool_) {
    throw DTypeError("positive: The `+` operator, on a bool tensor is not supported.",
                     self.device().str());
  }
  return self;
}

}  // namespace gantry
