// The fixture of the tests of comm::*.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/call.hpp"
#include "collectives/multi_gpu/output_cache.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {

/// Sets the size thresholds of comm::* for a scope.
class TuningScope {
 public:
  explicit TuningScope(const CommTuning& tuning) : before_(comm_tuning()) {
    comm_tuning() = tuning;
  }
  ~TuningScope() { comm_tuning() = before_; }
  TuningScope(const TuningScope&) = delete;
  TuningScope& operator=(const TuningScope&) = delete;

 private:
  CommTuning before_;
};

/// Thresholds for one device, helper devices, copy engines, and no cached outputs.
inline std::vector<CommTuning> all_tunings() {
  constexpr std::size_t kNever = SIZE_MAX;
  return {
      {},
      {.helper_bytes = 512, .send_by_engines_bytes = 1, .fetch_by_engines_bytes = 1},
      {.helper_bytes = 1, .send_by_engines_bytes = 4096, .fetch_by_engines_bytes = 4096},
      {.helper_bytes = kNever,
       .send_by_engines_bytes = kNever,
       .fetch_by_engines_bytes = kNever,
       .cached_output_bytes = 0},
  };
}

class CommFixture : public DeviceTest {
 protected:
  void TearDown() override {
    release_cached_outputs();
    DeviceTest::TearDown();
  }

  /// The first `count` devices, at most those there are; 0: all.
  static std::vector<Device> devices(int count = 0) {
    std::vector<Device> result;
    const int present = device_count();
    for (int i = 0; i < (count == 0 || count > present ? present : count); ++i) {
      result.push_back(Device::cuda(i));
    }
    return result;
  }

  /// One new stream per device, for a MultiStreamGuard.
  static std::vector<Stream> side_streams() {
    std::vector<Stream> streams;
    for (const Device device : devices()) streams.push_back(Stream::from_pool(device));
    return streams;
  }

  /// Values that differ by rank and index, exact in every dtype.
  static Tensor ramp(const Shape& shape, Device device, int rank, DType dtype = f32) {
    return (arange(shape.product(), {.dtype = i64}).remainder(97) + rank)
        .view(shape)
        .to(dtype)
        .to(device);
  }

  /// Every bit of a contiguous tensor.
  static std::vector<std::uint8_t> bits(const Tensor& tensor) {
    const Tensor host = tensor.cpu().contiguous();
    const auto* first = static_cast<const std::uint8_t*>(host.data());
    return {first, first + host.nbytes()};
  }

  /// Lengths around powers of two, chunks of kernels, and the sizes of all_tunings().
  static std::vector<std::int64_t> lengths() {
    std::vector<std::int64_t> result{0, 1, 3, 7, 8};
    for (const std::int64_t power : {16, 128, 256, 1024, 4096, 16384}) {
      for (const std::int64_t off : {-1, 0, 1}) result.push_back(power + off);
    }
    return result;
  }
};

}  // namespace gantry::testing
