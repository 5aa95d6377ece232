#include "tensor/broadcast.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/shape_ops.hpp>

namespace gantry {

namespace detail {

namespace {

Shape merge(std::string_view op, const Shape& a, const Shape& b) {
  const int ndim = std::max(a.size(), b.size());
  Shape result = Dims::filled(ndim, 1);
  for (int d = 0; d < ndim; ++d) {
    const int in_a = d - (ndim - a.size());
    const int in_b = d - (ndim - b.size());
    const std::int64_t size_a = in_a < 0 ? 1 : a[in_a];
    const std::int64_t size_b = in_b < 0 ? 1 : b[in_b];
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw ShapeError(fmt::format(
          "{}: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton "
          "dimension {}",
          op, size_a, size_b, d));
    }
    result[d] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

}  // namespace

Shape common_shape(std::string_view op, std::initializer_list<const Shape*> shapes) {
  Shape result;
  for (const Shape* shape : shapes) result = merge(op, result, *shape);
  return result;
}

TensorRef broadcast_ref(const Tensor& tensor, const Shape& sizes) {
  TensorRef result = tensor.ref();
  const TensorRef own = result;
  const int lead = sizes.size() - own.ndim;
  result.ndim = sizes.size();
  for (int d = 0; d < sizes.size(); ++d) {
    const bool repeated = d < lead || own.sizes[d - lead] != sizes[d];
    result.sizes[d] = sizes[d];
    result.strides[d] = repeated ? 0 : own.strides[d - lead];
  }
  return result;
}

void check_out_shape(std::string_view op, const Tensor& out, const Shape& shape) {
  if (out.sizes() == shape) return;
  throw ShapeError(fmt::format("{}: output with shape {} doesn't match the broadcast shape {}", op,
                               out.sizes().str(), shape.str()));
}

}  // namespace detail

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  return detail::common_shape("broadcast_shapes", {&a, &b});
}

}  // namespace gantry
