// The in-place operations of indexing.hpp. `op` is the name in errors.
#pragma once

#include <string_view>

#include <gantry/core/scalar.hpp>
#include <gantry/tensor/operand.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

void scatter_(const Tensor& self, int dim, const Tensor& index, const Operand& source);
void scatter_(const Tensor& self, int dim, const Tensor& index, const Operand& source,
              std::string_view reduce);
void scatter_add_(const Tensor& self, int dim, const Tensor& index, const Tensor& source);
void scatter_reduce_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                     std::string_view reduce, bool include_self);

void index_add_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                const Scalar& alpha);
void index_copy_(const Tensor& self, int dim, const Tensor& index, const Tensor& source);
void index_fill_(const Tensor& self, int dim, const Tensor& index, const Operand& value);
void index_reduce_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                   std::string_view reduce, bool include_self);

void put_(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate);
void masked_scatter_(const Tensor& self, const Tensor& mask, const Tensor& source);

}  // namespace gantry::detail
