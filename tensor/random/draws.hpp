#pragma once

#include <string_view>

#include <gantry/tensor/random.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// The generator for tensors of `device`. Throws InvalidArgument for another device's generator.
[[nodiscard]] Generator& generator_for(std::string_view op, Device device, GeneratorRef given);

// The members of Tensor of the same names: each fills `self` and returns it.
//
// Exponential numbers of rate `lambda` > 0. DTypes: floating.
const Tensor& exponential_(const Tensor& self, double lambda, GeneratorRef generator);
// Cauchy numbers, of a width `sigma` > 0. DTypes: floating.
const Tensor& cauchy_(const Tensor& self, double median, double sigma, GeneratorRef generator);
// e to the power of normal numbers, of a deviation `std` > 0. DTypes: floating.
const Tensor& log_normal_(const Tensor& self, double mean, double std, GeneratorRef generator);
// Numbers of trials up to the first success, of a probability `p` in (0, 1). DTypes: all but bool;
// integers saturate.
const Tensor& geometric_(const Tensor& self, double p, GeneratorRef generator);

}  // namespace gantry::detail
