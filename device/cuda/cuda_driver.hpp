#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The Driver of real GPUs. Its functions are spread over the files of this folder by noun.
class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(int device_count) : device_count_(device_count) {}

  [[nodiscard]] Platform platform() const noexcept override { return Platform::cuda; }
#include "device/drivers/override_driver_calls.inc"

 private:
  const int device_count_;
};

}  // namespace gantry
