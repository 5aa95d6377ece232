// What scatter_reduce and index_reduce have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <gantry/tensor/operand.hpp>
#include <gantry/tensor/tensor.hpp>

#include "kernels/indexing/indexing.hpp"

namespace gantry::detail {

enum class Reduction : std::uint8_t { sum, prod, mean, amax, amin };

// Throws InvalidArgument "scatter_reduce: reduce argument must be either sum, prod, mean, amax or
// amin, but got foo", and DTypeError for a mean of bools.
[[nodiscard]] Reduction reduction_named(std::string_view op, std::string_view name,
                                        const Tensor& self);

// A checked scatter of a source to a tensor of self's shape.
using Scatter = std::function<void(const Tensor& out, const Operand& source, kernels::ScatterMode)>;

// Reduces `source` into self by `scatter`. The first call of `scatter` writes nothing if an index
// is out of range and self is on the CPU.
void reduce_scattered(const Tensor& self, Reduction reduction, bool include_self,
                      const Scatter& scatter, const Tensor& source);

}  // namespace gantry::detail
