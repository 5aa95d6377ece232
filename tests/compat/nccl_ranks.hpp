// The ranks of one group in this process, one device each, and memory of their devices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/compat/nccl_functions.hpp"

namespace gantry::testing {

/// The ranks that a test can have: one on a machine with one GPU.
inline int ranks() { return std::min(device_count(), 4); }

/// Communicators that one thread made for all ranks.
class NcclRanks {
 public:
  explicit NcclRanks(int size = ranks()) : comms(static_cast<std::size_t>(size)) {
    EXPECT_EQ(ncclCommInitAll(comms.data(), size, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;
  ~NcclRanks() {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  [[nodiscard]] int size() const { return static_cast<int>(comms.size()); }
  /// Runs `call` for each rank in one group.
  void grouped(const std::function<ncclResult_t(int rank, ncclComm_t comm)>& call) const {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < size(); ++rank) {
      ASSERT_EQ(call(rank, comms[static_cast<std::size_t>(rank)]), ncclSuccess)
          << ncclGetLastError(nullptr);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }

  std::vector<ncclComm_t> comms;
};

/// Memory of a device with the given elements, between bytes that nothing may write.
class DeviceArray {
 public:
  template <class T>
  DeviceArray(int device, const std::vector<T>& elements) {
    std::vector<std::uint8_t> bytes(elements.size() * sizeof(T) + 2 * kGuard, kPattern);
    if (!elements.empty()) {
      std::memcpy(bytes.data() + kGuard, elements.data(), elements.size() * sizeof(T));
    }
    tensor_ = tensor(bytes, {.dtype = DType::u8, .device = Device::cuda(device)});
  }
  [[nodiscard]] void* data() const { return static_cast<std::byte*>(tensor_.data()) + kGuard; }
  /// Waits for the current stream of the device. Expects that the bytes around are as before.
  template <class T>
  [[nodiscard]] std::vector<T> elements() const {
    const auto bytes = tensor_.to_vector<std::uint8_t>();
    std::vector<T> elements((bytes.size() - 2 * kGuard) / sizeof(T));
    if (!elements.empty()) {
      std::memcpy(elements.data(), bytes.data() + kGuard, elements.size() * sizeof(T));
    }
    const auto is_intact = [](std::uint8_t byte) { return byte == kPattern; };
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + kGuard, is_intact));
    EXPECT_TRUE(std::all_of(bytes.end() - kGuard, bytes.end(), is_intact));
    return elements;
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  static constexpr std::uint8_t kPattern = 0xa5;
  Tensor tensor_;
};

}  // namespace gantry::testing
