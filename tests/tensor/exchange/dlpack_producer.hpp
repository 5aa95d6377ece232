// Another library that exports arrays through DLPack.
#pragma once

#include <cstdint>

#include <gantry/device/device.hpp>

#include "tests/tensor/exchange/dlpack_abi.hpp"

namespace gantry::testing {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;
inline constexpr std::int32_t kExtension = 12;

inline std::int32_t device_kind() { return platform() == Platform::simulated ? kExtension : kCuda; }

// Another library that exports arrays. It counts the calls of their deleters.
class Producer {
 public:
  // Three floats 1, 2, 3 on the CPU, which the test may change.
  DLManagedTensorVersioned array{.version = {1, 0},
                                 .manager_ctx = this,
                                 .deleter =
                                     [](DLManagedTensorVersioned* self) {
                                       ++static_cast<Producer*>(self->manager_ctx)->deleted;
                                     },
                                 .flags = 0,
                                 .dl_tensor = {.data = values,
                                               .device = {kCpu, 0},
                                               .ndim = 1,
                                               .dtype = {2, 32, 1},
                                               .shape = shape,
                                               .strides = strides,
                                               .byte_offset = 0}};
  alignas(256) float values[4] = {1, 2, 3, 4};
  std::int64_t shape[9] = {3, 1, 1, 1, 1, 1, 1, 1, 1};
  std::int64_t strides[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  int deleted = 0;
};

}  // namespace gantry::testing
