// Checks that operations with index tensors share.
#pragma once

#include <initializer_list>
#include <string_view>

#include <gantry/tensor/index_plan.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// Throws DTypeError "gather(): Expected dtype int32 or int64 for index, but got Float".
void check_index_dtype(std::string_view op, const Tensor& index);
// Throws DTypeError "scatter(): Expected self.dtype to be equal to src.dtype, but got Float and
// Double".
void check_source_dtype(std::string_view op, const Tensor& self, const Tensor& source);
// Throws ShapeError "gather(): Index tensor must have the same number of dimensions as input
// tensor, but got 1 and 2".
void check_index_dims(std::string_view op, const Tensor& tensor, const Tensor& index,
                      std::string_view name);
// Checks an output of shape `sizes`: its dtype and shape, and that it is apart from `inputs`.
void check_index_out(std::string_view op, const Tensor& out, DType dtype, const Shape& sizes,
                     std::initializer_list<const Tensor*> inputs);

// `tensor`, or a 1-D view if it is 0-dim.
[[nodiscard]] Tensor at_least_1d(const Tensor& tensor);
// True if index is no larger than `tensor` along every dim but `dim`.
[[nodiscard]] bool fits_index(const Tensor& index, const Tensor& tensor, int dim);

// Throws InvalidArgument for a plan that was moved from, to itself too: its lists are empty.
void check_whole(const char* op, const Tensor& self, const IndexPlan::Kind& kind);

}  // namespace gantry::detail
