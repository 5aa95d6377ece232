#include "device/idle_stream.hpp"

#include "device/drivers/cuda_platform.hpp"
#include "device/drivers/sim_platform.hpp"
#include "device/platform/platform.hpp"

namespace gantry {

bool is_idle(const NativeStream& stream) noexcept {
  const Driver* const driver = active_driver();
  if (driver == nullptr) return false;
  switch (driver->platform()) {
    case Platform::cuda:
      return is_cuda_stream_idle(stream);
    case Platform::simulated:
      return is_sim_stream_idle(stream);
    case Platform::none:
      break;
  }
  return false;
}

bool may_look_at(const NativeStream& stream) noexcept {
  const Driver* const driver = active_driver();
  // Simulated streams never synchronize with the default stream.
  return driver == nullptr || driver->platform() != Platform::cuda ||
         may_look_at_cuda_stream(stream);
}

}  // namespace gantry
