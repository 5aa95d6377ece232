#include <gantry/streams/profiler.hpp>

#include <exception>
#include <string>

#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "device/drivers/profiling.hpp"

namespace gantry::profiler {

void start() {
  if (platform() == Platform::cuda) switch_cuda_profilers(true);
}

void stop() {
  if (platform() == Platform::cuda) switch_cuda_profilers(false);
}

Scope::~Scope() {
  try {
    stop();
  } catch (const std::exception& error) {
    logging::warn(std::string("profiler: failed to stop: ") + error.what());
  }
}

}  // namespace gantry::profiler
