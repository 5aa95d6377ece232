#include "tensor/layout/broadcast.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/shape_ops.hpp>

namespace gantry {

namespace detail {

namespace {

Shape merge(std::string_view op, const Shape& a, const Shape& b,
            const std::optional<Device>& device) {
  const int ndim = std::max(a.size(), b.size());
  Shape result = Dims::filled(ndim, 1);
  for (int d = 0; d < ndim; ++d) {
    const int in_a = d - (ndim - a.size());
    const int in_b = d - (ndim - b.size());
    const std::int64_t size_a = in_a < 0 ? 1 : a[in_a];
    const std::int64_t size_b = in_b < 0 ? 1 : b[in_b];
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw ShapeError(
          fmt::format("{}: The size of tensor a ({}) must match the size of tensor b ({}) at "
                      "non-singleton dimension {}",
                      op, size_a, size_b, d),
          device ? device->str() : std::string());
    }
    result[d] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

}  // namespace

Shape common_shape(std::string_view op, std::initializer_list<const Shape*> shapes,
                   std::optional<Device> device) {
  Shape result;
  for (const Shape* shape : shapes) result = merge(op, result, *shape, device);
  return result;
}

Shape expanded_sizes(std::string_view op, const Shape& own, const Shape& sizes, Device device) {
  const int lead = sizes.size() - own.size();
  if (lead < 0) {
    throw ShapeError(
        fmt::format("{}: the number of sizes provided ({}) must be greater or equal to the number "
                    "of dimensions in the tensor ({})",
                    op, sizes.size(), own.size()),
        device.str());
  }
  Shape result = sizes;
  for (int d = 0; d < sizes.size(); ++d) {
    if (d < lead) {
      if (sizes[d] >= 0) continue;
      throw ShapeError(
          fmt::format("{}: The expanded size of the tensor ({}) isn't allowed in a leading, "
                      "non-existing dimension {}",
                      op, sizes[d], d),
          device.str());
    }
    const std::int64_t size = own[d - lead];
    if (sizes[d] == -1) result[d] = size;
    if (result[d] != size && (size != 1 || sizes[d] < 0)) {
      throw ShapeError(
          fmt::format("{}: The expanded size of the tensor ({}) must match the existing size ({}) "
                      "at non-singleton dimension {}. Target sizes: {}. Tensor sizes: {}",
                      op, sizes[d], size, d, sizes.str(), own.str()),
          device.str());
    }
  }
  return result;
}

TensorRef broadcast_ref(const Tensor& tensor, const Shape& sizes) {
  if (tensor.sizes() == sizes) return tensor.ref();
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
                               out.sizes().str(), shape.str()),
                   out.device().str());
}

}  // namespace detail

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  return detail::common_shape("broadcast_shapes", {&a, &b});
}

}  // namespace gantry
