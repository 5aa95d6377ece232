// Streams that gantry does not own.
#pragma once

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::testing {

/// One that lives as long as this, or until destroy().
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

/// The calling thread's default stream: cudaStreamPerThread, one handle for all threads.
inline Stream per_thread_stream(Device device = Device::cuda(0)) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the macro stands for
  return Stream::external(reinterpret_cast<void*>(2), device);
}

}  // namespace gantry::testing
