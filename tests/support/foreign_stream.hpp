// A stream that gantry does not own, for a time.
#pragma once

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::testing {

class ForeignStream {
 public:
  explicit ForeignStream(int device = 0) : native_(driver().create_stream(device, 0)) {}
  ~ForeignStream() { destroy(); }
  ForeignStream(const ForeignStream&) = delete;
  ForeignStream& operator=(const ForeignStream&) = delete;

  [[nodiscard]] Stream stream() const {
    return Stream::external(native_.handle, Device::cuda(native_.device));
  }
  void destroy() {
    if (native_.handle != nullptr) driver().destroy_stream(native_);
    native_.handle = nullptr;
  }

 private:
  NativeStream native_;
};

}  // namespace gantry::testing
