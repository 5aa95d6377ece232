#pragma once

#include <span>

#include <gantry/tensor/tensor.hpp>

#include "collectives/folding.hpp"

namespace gantry {

// out = left fold of `inputs`, contiguous device tensors of out's shape and dtype on any devices,
// in order. Ordered with the current streams of all devices involved, both ways: inputs may be
// overwritten on their own streams at once.
void fold_onto(const Tensor& out, std::span<const Tensor> inputs, const Folding& how);

// Every tensor (contiguous, one per device) becomes the fold of all, in place. Ordered as
// fold_onto.
void fold_into_all(std::span<const Tensor> tensors, const Folding& how);

}  // namespace gantry
