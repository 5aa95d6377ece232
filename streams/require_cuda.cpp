#include "streams/require_cuda.hpp"

#include <string>

#include <gantry/core/error.hpp>

namespace gantry {

int require_cuda(Device device, std::string_view op) {
  if (!device.is_cuda()) {
    throw InvalidArgument(std::string(op) + ": a CUDA device was expected, but got " +
                          device.str());
  }
  return device.resolved().index;
}

}  // namespace gantry
