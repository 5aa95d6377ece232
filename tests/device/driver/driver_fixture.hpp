// What the driver contract tests share: owners of driver resources, and a gate in a stream.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::testing {

/// Device memory for a scope.
class DeviceBytes {
 public:
  DeviceBytes(int device, std::size_t bytes)
      : device_(device), data_(driver().allocate(device, bytes)) {}
  ~DeviceBytes() { driver().deallocate(device_, data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  int device_;
  void* data_;
};

/// Page-locked host memory for a scope.
class PinnedBytes {
 public:
  explicit PinnedBytes(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::uint8_t*>(driver().allocate_pinned(bytes))) {}
  ~PinnedBytes() { driver().deallocate_pinned(data_); }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::vector<std::uint8_t> vec() const { return {data_, data_ + bytes_}; }
  /// Writes a pattern that depends on `seed`.
  void set_pattern(unsigned seed) {
    for (std::size_t i = 0; i < bytes_; ++i) {
      data_[i] = static_cast<std::uint8_t>((i * 31u + (i >> 8u) + seed) & 0xffu);
    }
  }

 private:
  std::size_t bytes_;
  std::uint8_t* data_;
};

/// A stream for a scope.
class TestStream {
 public:
  explicit TestStream(int device) : stream_(driver().create_stream(device, 0)) {}
  ~TestStream() { driver().destroy_stream(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator NativeStream() const { return stream_; }

 private:
  NativeStream stream_;
};

/// An event for a scope.
class TestEvent {
 public:
  explicit TestEvent(int device, NativeEventFlags flags = {})
      : event_(driver().create_event(device, flags)) {}
  ~TestEvent() { driver().destroy_event(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator NativeEvent() const { return event_; }

 private:
  NativeEvent event_;
};

/// Holds a stream up until it is opened. Use one at a time: CUDA may run the host functions of all
/// streams on one thread.
class Gate {
 public:
  explicit Gate(NativeStream stream) {
    driver().launch_host_function(
        stream, [](void* gate) { static_cast<Gate*>(gate)->open_.wait(false); }, this);
    stream_ = stream;
  }
  ~Gate() {
    open();
    driver().synchronize_stream(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
  NativeStream stream_;
};

/// Expects that the device has as much free memory as `before` again. On a GPU the driver may keep
/// a little for itself, and other processes may come.
inline void expect_free_again(std::size_t before) {
  const std::size_t slack = platform() == Platform::simulated ? 0 : std::size_t{16} << 20;
  EXPECT_GE(driver().memory_info(0).free + slack, before);
}

/// Expects that `call` throws CudaError and returns its code, or 0.
template <class Call>
int cuda_error_of(Call call) {
  try {
    call();
  } catch (const CudaError& error) {
    return error.code();
  }
  return 0;
}

class DriverTest : public DeviceTest {};

}  // namespace gantry::testing
