#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>
#include <gantry/tensor/tensor.hpp>

// Checks and result types that reductions, extrema with indices and scans share.
namespace gantry::detail {

/// The dims that a reduction removes, and the result's shapes.
struct ReducedDims {
  Shape kept;     // with keepdim: 1 in place of the reduced sizes
  Shape removed;  // without keepdim
  std::int64_t length = 1;
  Dims dims;
};

[[nodiscard]] ReducedDims reduced_dims(std::string_view op, const Tensor& self, const Axes& axes);

/// The elements of a new tensor as an array of another shape.
[[nodiscard]] TensorRef dense_ref(const Tensor& tensor, const Shape& sizes);

/// The dtype of sums and products of `dtype`.
[[nodiscard]] inline DType summed(DType dtype) {
  return is_floating_point(dtype) ? dtype : DType::i64;
}

/// The dtype of a sum into `out`: that of `out`, if a result of the natural dtype can be cast to
/// it. Throws: InvalidArgument for an undefined tensor.
[[nodiscard]] std::optional<DType> dtype_for(std::string_view op, const Tensor& out,
                                             const Tensor& self, std::optional<DType> given);

/// Copies `result` to `out`, after the checks of a Destination. Returns `out`.
Tensor& copy_result(std::string_view op, Tensor& out, const Tensor& result);

/// Throws the ShapeError of a reduction of no elements to one.
[[noreturn]] void refuse_empty(std::string_view op, Device device);

/// Throws ShapeError for an empty reduction, for operations that have no identity.
void check_not_empty(std::string_view op, const Tensor& self, const Axes& axes, const Dims& dims);

}  // namespace gantry::detail
