#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// The shape that all broadcast to. Throws ShapeError "add: The size of tensor a (16) must match the
// size of tensor b (3) at non-singleton dimension 1".
// The error names `device`, where the tensors are.
[[nodiscard]] Shape common_shape(std::string_view op, std::initializer_list<const Shape*> shapes,
                                 std::optional<Device> device = {});

// What expand makes of `sizes` for a tensor of shape `own`: -1 keeps a size. Throws ShapeError
// "expand: The expanded size of the tensor (4) must match the existing size (3) at non-singleton
// dimension 0. Target sizes: [4]. Tensor sizes: [3]".
[[nodiscard]] Shape expanded_sizes(std::string_view op, const Shape& own, const Shape& sizes,
                                   Device device);

// What a kernel sees of `tensor` broadcast to `sizes`, which its shape must fit.
[[nodiscard]] TensorRef broadcast_ref(const Tensor& tensor, const Shape& sizes);

// Throws ShapeError "add: output with shape [3] doesn't match the broadcast shape [2, 3]".
void check_out_shape(std::string_view op, const Tensor& out, const Shape& shape);

}  // namespace gantry::detail
