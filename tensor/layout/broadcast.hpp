#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// The common broadcast shape. Throws ShapeError "add: The size of tensor a (16) must match the
// size of tensor b (3) at non-singleton dimension 1".
// `device` is the tensors' device, for the error.
[[nodiscard]] Shape common_shape(std::string_view op, std::initializer_list<const Shape*> shapes,
                                 std::optional<Device> device = {});

// The result shape of expand(sizes) for a tensor of shape `own`; -1 keeps a size. Throws ShapeError
// "expand: The expanded size of the tensor (4) must match the existing size (3) at non-singleton
// dimension 0. Target sizes: [4]. Tensor sizes: [3]".
[[nodiscard]] Shape expanded_sizes(std::string_view op, const Shape& own, const Shape& sizes,
                                   Device device);

// The TensorRef of `tensor` broadcast to `sizes`. Precondition: its shape broadcasts to `sizes`.
[[nodiscard]] TensorRef broadcast_ref(const Tensor& tensor, const Shape& sizes);

// Throws ShapeError "add: output with shape [3] doesn't match the broadcast shape [2, 3]".
void check_out_shape(std::string_view op, const Tensor& out, const Shape& shape);

}  // namespace gantry::detail
