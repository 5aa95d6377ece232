// The CUDA runtime as its tests call it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <utility>
#include <vector>

// A call that must succeed.
#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)
// A call that must fail with `number`, which becomes the last error once.
#define EXPECT_CUDA_ERROR(call, number)  \
  EXPECT_EQ(call, number);               \
  EXPECT_EQ(cudaGetLastError(), number); \
  EXPECT_EQ(cudaGetLastError(), cudaSuccess)

namespace gantry::testing {

// Memory of the current device, full of one byte.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size, int value = 0) : size_(size) {
    EXPECT_CUDA(cudaMalloc(&data_, size));
    EXPECT_CUDA(cudaMemset(data_, value, size));
    // On a GPU the fill does not block the host, and non-blocking streams do not wait for it.
    EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  }
  ~DeviceBytes() { EXPECT_CUDA(cudaFree(data_)); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // A copy on the host, by cudaMemcpy().
  [[nodiscard]] std::vector<unsigned char> read() const {
    std::vector<unsigned char> bytes(size_);
    EXPECT_CUDA(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

// A stream of the current device, for as long as the object lives.
class OwnStream {
 public:
  explicit OwnStream(unsigned flags) { EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, flags)); }
  ~OwnStream() { EXPECT_CUDA(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaStream_t stream_ = nullptr;
};

// Holds back the later work of a stream, until release() or the end.
class Hold {
 public:
  explicit Hold(cudaStream_t stream) : released_(release_.get_future()) {
    EXPECT_CUDA(cudaLaunchHostFunc(
        stream, [](void* hold) { static_cast<Hold*>(hold)->released_.wait(); }, this));
  }
  ~Hold() {
    release();
    EXPECT_CUDA(cudaDeviceSynchronize());  // the function needs this object
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void release() {
    if (!std::exchange(is_released_, true)) release_.set_value();
  }

 private:
  bool is_released_ = false;
  std::promise<void> release_;
  std::future<void> released_;
};

// Expects that the work of `stream` ends with the hold alone, which is released.
inline void expect_held_back(cudaStream_t stream, Hold& hold) {
  std::future<cudaError_t> end =
      std::async(std::launch::async, [stream] { return cudaStreamSynchronize(stream); });
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  hold.release();
  EXPECT_CUDA(end.get());
}

inline std::vector<unsigned char> bytes_of(std::size_t size, int value) {
  return std::vector<unsigned char>(size, static_cast<unsigned char>(value));
}

}  // namespace gantry::testing
