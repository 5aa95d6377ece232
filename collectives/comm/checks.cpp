#include "collectives/comm/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include <gantry/core/error.hpp>

#include "tensor/overlap.hpp"

namespace gantry::comm {

std::vector<Device> checked_devices(std::string_view op, const std::vector<Device>& devices) {
  if (devices.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one device, but got none", op));
  }
  std::vector<Device> resolved;
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
  if (!tensor.defined()) {
    throw InvalidArgument(
        fmt::format("{}: expected a defined tensor for {}, but got an undefined tensor", op, what));
  }
}

void require_device_tensors(std::string_view op, std::span<const Tensor> tensors,
                            std::string_view what) {
  if (tensors.empty()) {
    throw InvalidArgument(
        fmt::format("{}: Expected at least one {} tensor, but got none", op, what));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) {
      require_defined(op, tensors[i], fmt::format("{} tensor at index {}", what, i));
    }
    if (tensors[i].is_cuda()) continue;
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

void require_alike(std::string_view op, std::span<const Tensor> tensors, std::string_view what) {
  require_equal_shapes(op, tensors, what);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].dtype() == tensors[0].dtype()) continue;
    throw DTypeError(fmt::format("{}: {} tensor at index {} has dtype {}, but expected {}", op,
                                 what, i, name(tensors[i].dtype()), name(tensors[0].dtype())));
  }
}

void require_separate(std::string_view op, std::span<const Tensor> tensors) {
  // Sorted by address, only neighbours have to be compared: lists may be long.
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t index;
  };
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.numel() == 0) continue;
    std::size_t extent = 1;
    for (int dim = 0; dim < tensor.dim(); ++dim) {
      extent += static_cast<std::size_t>((tensor.size(dim) - 1) * tensor.stride(dim));
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data());
    ranges.push_back({begin, begin + extent * tensor.element_size(), i});
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  std::uintptr_t reach = 0;
  for (std::size_t i = 0; i < ranges.size(); reach = std::max(reach, ranges[i++].end)) {
    if (ranges[i].begin >= reach) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (ranges[j].end <= ranges[i].begin) continue;
      const auto [first, second] = std::minmax(ranges[i].index, ranges[j].index);
      if (detail::overlap_of(tensors[first], tensors[second]) == detail::Overlap::none) continue;
      const std::string device = tensors[first].device().str();
      throw InvalidArgument(
          fmt::format("{}: expected tensors that share no memory, but tensors {} and {}, both on "
                      "{}, do",
                      op, first, second, device),
          device);
    }
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

int checked_dim(std::string_view op, int dim, int ndim) {
  if (ndim == 0) {
    throw ShapeError(
        fmt::format("{}: expected tensors of at least one dimension, but got a 0-dim tensor", op));
  }
  const int counted = dim < 0 ? dim + ndim : dim;
  if (counted < 0 || counted >= ndim) {
    throw IndexError(
        fmt::format("{}: Dimension out of range (expected to be in range of [{}, {}], but got {})",
                    op, -ndim, ndim - 1, dim));
  }
  return counted;
}

std::vector<Device> devices_of(std::span<const Tensor> tensors) {
  std::vector<Device> devices;
  for (const Tensor& tensor : tensors) devices.push_back(tensor.device());
  return devices;
}

}  // namespace gantry::comm
