#include "device/checked_device_index.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry {

int checked_device_index(Device device, std::string_view op) {
  if (!device.is_cuda()) {
    throw InvalidArgument(fmt::format("{}: expected a CUDA device, but got {}", op, device.str()));
  }
  return device.resolved().index;
}

}  // namespace gantry
