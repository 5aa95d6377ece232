#include "collectives/multi_gpu/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/multi_gpu/extents.hpp"
#include "tensor/check.hpp"
#include "tensor/overlap.hpp"

namespace gantry::comm {

std::vector<Device> checked_devices(std::string_view op, const std::vector<Device>& devices) {
  if (devices.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one device, but got none", op));
  }
  std::vector<Device> resolved;
  resolved.reserve(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cuda()) {
      throw InvalidArgument(fmt::format("{}: expected CUDA devices, but device at index {} is {}",
                                        op, i, devices[i].str()));
    }
    resolved.push_back(devices[i].resolved());
  }
  return resolved;
}

void require_defined(std::string_view op, const Tensor& tensor, std::string_view what) {
  if (tensor.defined()) return;
  throw InvalidArgument(
      fmt::format("{}: expected a defined tensor for {}, but got an undefined tensor", op, what));
}

void require_defined(std::string_view op, std::span<const Tensor> tensors, std::string_view what) {
  const auto found = std::ranges::find_if_not(tensors, &Tensor::defined);
  if (found == tensors.end()) return;
  require_defined(op, *found, fmt::format("{} at index {}", what, found - tensors.begin()));
}

void require_device_tensors(std::string_view op, std::span<const Tensor> tensors,
                            std::string_view what) {
  if (tensors.empty()) {
    throw InvalidArgument(
        fmt::format("{}: Expected at least one {} tensor, but got none", op, what));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() && tensors[i].is_cuda()) continue;
    require_defined(op, tensors.first(i + 1), fmt::format("{} tensor", what));
    const std::string device = tensors[i].device().str();
    // PyTorch words the two differently.
    throw InvalidArgument(
        what == "output"
            ? fmt::format("{}: Expected all output tensors to be CUDA tensors, but output tensor "
                          "at index {} has device '{}'",
                          op, i, device)
            : fmt::format("{}: Expected all {} tensors to be CUDA tensors, but tensor at index {} "
                          "has device {}",
                          op, what, i, device),
        device);
  }
}

void require_equal_shapes(std::string_view op, std::span<const Tensor> tensors,
                          std::string_view what) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].sizes() == tensors[0].sizes()) continue;
    throw ShapeError(fmt::format("{}: {} tensor at index {} has invalid shape {}, but expected {}",
                                 op, what, i, tensors[i].sizes().str(), tensors[0].sizes().str()));
  }
}

void require_dtype(std::string_view op, std::span<const Tensor> tensors, DType dtype,
                   std::string_view what) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dtype() == dtype) continue;
    throw DTypeError(fmt::format("{}: {} tensor at index {} has dtype {}, but expected {}", op,
                                 what, i, name(tensors[i].dtype()), name(dtype)));
  }
}

void require_alike(std::string_view op, std::span<const Tensor> tensors, std::string_view what) {
  require_equal_shapes(op, tensors, what);
  require_dtype(op, tensors, tensors.front().dtype(), what);
}

void require_result(std::string_view op, const Tensor& out, const Shape& shape, DType dtype,
                    bool allow_cast) {
  require_defined(op, out, "argument 'out'");
  require_writable(op, std::span(&out, 1));
  if (out.sizes() != shape) {
    throw ShapeError(fmt::format("{}: Expected out tensor to have shape {}, but got {}", op,
                                 shape.str(), out.sizes().str()),
                     out.device().str());
  }
  if (!allow_cast && out.dtype() != dtype) {
    throw DTypeError(
        fmt::format("{}: expected out of dtype {}, but got {}", op, name(dtype), name(out.dtype())),
        out.device().str());
  }
}

void require_separate(std::string_view op, std::span<const Tensor> tensors) {
  if (tensors.size() < 2) return;
  const auto shared = SortedExtents(tensors).find_shared();
  if (!shared) return;
  const std::string device = tensors[shared->first].device().str();
  throw InvalidArgument(
      fmt::format(
          "{}: expected tensors that share no memory, but tensors {} and {}, both on {}, do", op,
          shared->first, shared->second, device),
      device);
}

void require_own_place(std::string_view op, std::span<const Tensor> outputs,
                       std::span<const Tensor> inputs) {
  require_separate(op, outputs);
  const SortedExtents extents(outputs);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    (void)extents.any_shared(inputs[k], [&](std::size_t i, detail::Overlap overlap) -> bool {
      if (overlap == detail::Overlap::full && k % outputs.size() == i) return false;
      throw InvalidArgument(
          fmt::format("{}: expected outputs that share memory with no other input, but output {} "
                      "shares input {}'s",
                      op, i, k),
          outputs[i].device().str());
    });
  }
}

void require_writable(std::string_view op, std::span<const Tensor> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!detail::has_internal_overlap(outputs[i])) continue;
    throw InvalidArgument(fmt::format(
        "{}: expected output {} to have a place for each element, but several share one (an "
        "expanded tensor?); clone() it first",
        op, i));
  }
}

void require_apart(std::string_view op, std::span<const Tensor> outputs,
                   std::span<const Tensor> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (!outputs[i].is_view_of(inputs[j])) continue;
      throw InvalidArgument(fmt::format(
          "{}: expected outputs that share no memory with inputs, but output {} shares input {}'s",
          op, i, j));
    }
  }
}

bool shares_memory(const Tensor& tensor, std::span<const Tensor> others) {
  return std::ranges::any_of(others, [&](const Tensor& other) { return tensor.is_view_of(other); });
}

int checked_dim(std::string_view op, int dim, const Tensor& tensor) {
  if (tensor.dim() > 0) return detail::wrap_dim(op, dim, tensor);
  throw ShapeError(
      fmt::format("{}: expected tensors of at least one dimension, but got a 0-dim tensor", op));
}

}  // namespace gantry::comm
