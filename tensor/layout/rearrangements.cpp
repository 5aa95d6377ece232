#include <gantry/tensor/rearrangements.hpp>

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

Tensor atleast_1d(const Tensor& self) {
  detail::check_defined("atleast_1d", "self", self);
  return self.dim() == 0 ? self.unsqueeze(0) : self;
}

Tensor atleast_2d(const Tensor& self) {
  detail::check_defined("atleast_2d", "self", self);
  return self.dim() < 2 ? atleast_1d(self).unsqueeze(0) : self;
}

Tensor atleast_3d(const Tensor& self) {
  detail::check_defined("atleast_3d", "self", self);
  return self.dim() < 3 ? atleast_2d(self).unsqueeze(2) : self;
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing) {
  if (tensors.empty()) {
    throw InvalidArgument("meshgrid: meshgrid expects a non-empty TensorList");
  }
  if (indexing != "ij" && indexing != "xy") {
    throw InvalidArgument(fmt::format(
        "meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {}", indexing));
  }
  const Device device = detail::common_device("meshgrid", tensors);
  Shape shape;
  for (const Tensor& tensor : tensors) {
    if (tensor.dim() > 1) {
      throw ShapeError(fmt::format("meshgrid: Expected 0D or 1D tensor in the tensor list but got "
                                   "a tensor with {} dims",
                                   tensor.dim()),
                       device.str());
    }
    if (tensor.dtype() != tensors[0].dtype()) {
      throw DTypeError(fmt::format("meshgrid: expected all tensors to have the same dtype, but got "
                                   "{} and {}",
                                   torch_name(tensors[0].dtype()), torch_name(tensor.dtype())),
                       device.str());
    }
    shape.push_back(tensor.numel());
  }
  const bool swaps = indexing == "xy" && tensors.size() > 1;
  std::vector<Tensor> grids;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Shape column = Dims::filled(shape.size(), 1);
    column[static_cast<int>(i)] = tensors[i].numel();
    const Tensor grid = atleast_1d(tensors[i]).view(column).expand(shape);
    grids.push_back(swaps ? grid.transpose(0, 1) : grid);
  }
  return grids;
}

Tensor rot90(const Tensor& self, std::int64_t k, const Axes& dims) {
  const kernels::OpScope scope("rot90");
  detail::check_defined("rot90", "self", self);
  if (dims.dims().size() != 2) {
    throw InvalidArgument(fmt::format("rot90: expected total rotation dims == 2, but got dims = {}",
                                      dims.dims().size()),
                          self.device().str());
  }
  if (self.dim() < 2) {
    throw ShapeError(
        fmt::format("rot90: expected total dims >= 2, but got total dims = {}", self.dim()),
        self.device().str());
  }
  const Dims axes = detail::wrap_dims("rot90", dims, self);
  const auto first = static_cast<int>(axes[0]);
  const auto second = static_cast<int>(axes[1]);
  switch (((k % 4) + 4) % 4) {
    case 1:
      return self.flip(second).transpose(first, second);
    case 2:
      return self.flip({first, second});
    case 3:
      return self.flip(first).transpose(first, second);
    default:
      return self.clone();
  }
}

Tensor fliplr(const Tensor& self) {
  const kernels::OpScope scope("fliplr");
  detail::check_defined("fliplr", "self", self);
  if (self.dim() < 2) {
    throw ShapeError("fliplr: Input must be >= 2-d.", self.device().str());
  }
  return self.flip(1);
}

Tensor flipud(const Tensor& self) {
  const kernels::OpScope scope("flipud");
  detail::check_defined("flipud", "self", self);
  if (self.dim() < 1) {
    throw ShapeError("flipud: Input must be >= 1-d.", self.device().str());
  }
  return self.flip(0);
}

}  // namespace gantry
