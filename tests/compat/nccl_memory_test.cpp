// Memory of NCCL's interface, windows, and one-sided signals.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/compat/nccl_elements.hpp"
#include "tests/compat/nccl_ranks.hpp"

namespace gantry {
namespace {

using testing::DeviceArray;
using testing::elements_of;
using testing::NcclRanks;
using testing::ranks;
using testing::reduced;

constexpr std::size_t kBytes = std::size_t{4} << 20;

// Memory of ncclMemAlloc on each device.
class OwnMemory {
 public:
  explicit OwnMemory(int size) {
    for (int rank = 0; rank < size; ++rank) {
      set_device(Device::cuda(rank));
      EXPECT_EQ(ncclMemAlloc(&places_.emplace_back(), kBytes), ncclSuccess);
      bytes(rank).fill_(0);
    }
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() {
    for (void* const place : places_) EXPECT_EQ(ncclMemFree(place), ncclSuccess);
  }
  [[nodiscard]] void* at(int rank, std::size_t offset = 0) const {
    return static_cast<std::byte*>(places_[static_cast<std::size_t>(rank)]) + offset;
  }
  [[nodiscard]] Tensor bytes(int rank) const {
    return from_blob(at(rank), {static_cast<std::int64_t>(kBytes)},
                     {.dtype = DType::u8, .device = Device::cuda(rank)});
  }
  [[nodiscard]] Tensor floats(int rank, std::size_t offset, std::size_t count) const {
    return from_blob(at(rank, offset), {static_cast<std::int64_t>(count)},
                     {.dtype = DType::f32, .device = Device::cuda(rank)});
  }

 private:
  std::vector<void*> places_;
};

// A window of each rank on the same part of its memory.
std::vector<ncclWindow_t> windows_on(const NcclRanks& group, const OwnMemory& memory,
                                     std::size_t offset, std::size_t bytes) {
  std::vector<ncclWindow_t> windows(group.comms.size());
  group.grouped([&](int rank, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory.at(rank, offset), bytes,
                                  &windows[static_cast<std::size_t>(rank)], 0);
  });
  return windows;
}

void close(const NcclRanks& group, const std::vector<ncclWindow_t>& windows) {
  for (std::size_t rank = 0; rank < windows.size(); ++rank) {
    EXPECT_EQ(ncclCommWindowDeregister(group.comms[rank], windows[rank]), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
}

// Reduces the floats at `offset` of all ranks' memory, in place.
void expect_sum_in(const NcclRanks& group, const OwnMemory& memory, std::size_t offset,
                   std::size_t count = 200'000) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < group.size(); ++rank) {
    inputs.push_back(elements_of<float>(rank, count));
    memory.floats(rank, offset, count).copy_(tensor(inputs.back()));
  }
  group.grouped([&](int rank, ncclComm_t comm) {
    void* const place = memory.at(rank, offset);
    return ncclAllReduce(place, place, count, ncclFloat32, ncclSum, comm, nullptr);
  });
  for (int rank = 0; rank < group.size(); ++rank) {
    EXPECT_EQ(memory.floats(rank, offset, count).to_vector<float>(), reduced(ncclSum, inputs));
  }
}

TEST(NcclMemory, IsOfTheCurrentDeviceUntilItIsFreed) {
  for (const std::size_t bytes : {0, 1, 5000}) {
    set_device(Device::cuda(ranks() - 1));
    void* place = nullptr;
    ASSERT_EQ(ncclMemAlloc(&place, bytes), ncclSuccess);
    ASSERT_NE(place, nullptr);
    const Tensor all = from_blob(place, {static_cast<std::int64_t>(bytes)},
                                 {.dtype = DType::u8, .device = Device::cuda(ranks() - 1)});
    EXPECT_EQ(all.device(), Device::cuda(ranks() - 1));
    EXPECT_EQ(ncclMemFree(static_cast<std::byte*>(place) + 1), ncclInvalidArgument);
    EXPECT_EQ(ncclMemFree(place), ncclSuccess);
    EXPECT_EQ(ncclMemFree(place), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr),
                 "ncclMemFree: expected memory of ncclMemAlloc, but got another address");
  }
  EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);
  EXPECT_EQ(ncclMemAlloc(nullptr, 8), ncclInvalidArgument);
  void* place = nullptr;
  EXPECT_NE(ncclMemAlloc(&place, std::size_t{1} << 60), ncclSuccess);
}

// Peers use large arrays of it in place, from any element of the allocation to its last one.
TEST(NcclMemory, HasLargeArraysAnywhere) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  for (const std::size_t offset : {std::size_t{0}, std::size_t{12}, kBytes / 4}) {
    expect_sum_in(group, memory, offset, (kBytes - offset) / sizeof(float));
  }
}

TEST(NcclMemory, RegistrationChangesNoResult) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  std::vector<void*> handles(group.comms.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_EQ(ncclCommRegister(group.comms[at], memory.at(rank), kBytes, &handles[at]),
              ncclSuccess);
  }
  expect_sum_in(group, memory, 0);
  for (std::size_t at = 0; at < handles.size(); ++at) {
    EXPECT_EQ(ncclCommDeregister(group.comms[at], handles[at]), ncclSuccess);
  }
  EXPECT_EQ(ncclCommRegister(group.comms[0], nullptr, 4, handles.data()), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(group.comms[0], memory.at(0), 4, nullptr), ncclInvalidArgument);
}

TEST(NcclWindows, OperationsOnTheirMemoryAreCorrect) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  const auto windows = windows_on(group, memory, 0, kBytes);
  expect_sum_in(group, memory, 0);
  expect_sum_in(group, memory, 4096);
  void* place = nullptr;
  EXPECT_EQ(ncclWinGetUserPtr(group.comms[0], windows[0], &place), ncclSuccess);
  EXPECT_EQ(place, memory.at(0));
  close(group, windows);
  expect_sum_in(group, memory, 0);
  EXPECT_EQ(ncclWinGetUserPtr(group.comms[0], windows[0], &place), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowDeregister(group.comms[0], windows[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowDeregister(group.comms[0], nullptr), ncclSuccess);
}

// A program allocates once, and registers the parts.
TEST(NcclWindows, SeveralMayBeOnOneAllocation) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  const auto first = windows_on(group, memory, 0, kBytes / 2);
  const auto second = windows_on(group, memory, kBytes / 2, kBytes / 2);
  const auto again = windows_on(group, memory, 0, kBytes / 2);
  expect_sum_in(group, memory, 0);
  expect_sum_in(group, memory, kBytes / 2);
  close(group, first);
  expect_sum_in(group, memory, 0);
  expect_sum_in(group, memory, kBytes / 2);
  close(group, again);
  close(group, second);
  const auto later = windows_on(group, memory, 0, kBytes);
  expect_sum_in(group, memory, 0);
  close(group, later);
}

TEST(NcclWindows, OtherMemoryKeepsToStaging) {
  const NcclRanks group;
  std::vector<Tensor> data;
  std::vector<ncclWindow_t> windows(group.comms.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    data.push_back(full({1000}, rank + 1, {.dtype = DType::f32, .device = Device::cuda(rank)}));
  }
  group.grouped([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    return ncclCommWindowRegister(comm, data[at].data(), 4000, &windows[at], 0);
  });
  void* place = nullptr;
  EXPECT_EQ(ncclGetPeerDevicePointer(windows[0], 0, 0, &place), ncclInvalidUsage);
  group.grouped([&](int rank, ncclComm_t comm) {
    void* const at = data[static_cast<std::size_t>(rank)].data();
    return ncclAllReduce(at, at, 1000, ncclFloat32, ncclSum, comm, nullptr);
  });
  const float sum = static_cast<float>(group.size() * (group.size() + 1)) / 2;
  for (const Tensor& one : data) {
    EXPECT_EQ(one.to_vector<float>(), std::vector<float>(1000, sum));
  }
  close(group, windows);
}

class NcclSignals : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks() < 2) GTEST_SKIP() << "needs two devices";
  }
};

TEST_F(NcclSignals, APutIsReadAfterItsSignal) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  const auto windows = windows_on(group, memory, 4096, kBytes / 2);
  std::vector<DeviceArray> sent;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const int next = (rank + 1) % group.size();
    sent.emplace_back(rank, elements_of<std::uint64_t>(rank, 1000));
    ASSERT_EQ(ncclPutSignal(sent.back().data(), 1000, ncclUint64, next, windows[at], 64, 0, 0, 0,
                            group.comms[at], nullptr),
              ncclSuccess)
        << ncclGetLastError(nullptr);
    // A signal does not wait until the one before is awaited.
    for (int more = 0; more < 60; ++more) {
      ASSERT_EQ(ncclSignal(next, 0, 0, 0, group.comms[at], nullptr), ncclSuccess);
    }
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const int previous = (rank + group.size() - 1) % group.size();
    ncclWaitSignalDesc_t wait{.opCnt = 61, .peer = previous, .sigIdx = 0, .ctx = 0};
    ASSERT_EQ(ncclWaitSignal(1, &wait, group.comms[static_cast<std::size_t>(rank)], nullptr),
              ncclSuccess);
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const int previous = (rank + group.size() - 1) % group.size();
    const Tensor got = from_blob(memory.at(rank, 4096 + 64), {1000},
                                 {.dtype = DType::i64, .device = Device::cuda(rank)});
    std::vector<std::uint64_t> bits;
    for (const std::int64_t one : got.to_vector<std::int64_t>()) {
      bits.push_back(static_cast<std::uint64_t>(one));
    }
    EXPECT_EQ(bits, elements_of<std::uint64_t>(previous, 1000));
  }
  close(group, windows);
}

TEST_F(NcclSignals, PeersMemoryHasAnAddress) {
  const NcclRanks group;
  const OwnMemory memory(group.size());
  const auto windows = windows_on(group, memory, 4096, kBytes / 2);
  memory.bytes(1).fill_(7);
  synchronize(Device::cuda(1));
  void* place = nullptr;
  ASSERT_EQ(ncclGetPeerDevicePointer(windows[0], 16, 1, &place), ncclSuccess);
  EXPECT_EQ(place, memory.at(1, 4096 + 16));  // the ranks are one process
  void* same = nullptr;
  ASSERT_EQ(ncclGetPeerDevicePointer(windows[0], 0, 0, &same), ncclSuccess);
  EXPECT_EQ(same, memory.at(0, 4096));
  EXPECT_EQ(ncclGetPeerDevicePointer(windows[0], 0, group.size(), &place), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(windows[0], 0, -1, &place), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(windows[0], 0, 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(nullptr, 0, 1, &place), ncclInvalidArgument);
  close(group, windows);
  EXPECT_EQ(ncclGetPeerDevicePointer(windows[0], 0, 1, &place), ncclInvalidArgument);
}

TEST_F(NcclSignals, WrongPlacesAreNamed) {
  const NcclRanks group;
  ncclComm_t comm = group.comms[0];
  ncclWaitSignalDesc_t wait{.opCnt = 1, .peer = 1, .sigIdx = 0, .ctx = 0};
  EXPECT_EQ(ncclSignal(1, 0, 0, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclSignal: expected a communicator with a window that its ranks can reach");
  const OwnMemory memory(group.size());
  const auto windows = windows_on(group, memory, 0, kBytes);
  const DeviceArray data(0, std::vector<float>(100));
  EXPECT_EQ(ncclPutSignal(data.data(), 100, ncclFloat32, 1, windows[0], kBytes - 399, 0, 0, 0, comm,
                          nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGetLastError(nullptr),
            "ncclPutSignal: expected a place within the window, but got offset " +
                std::to_string(kBytes - 399) + " for 400 bytes");
  EXPECT_EQ(ncclPutSignal(data.data(), SIZE_MAX / 4, ncclFloat64, 1, windows[0], 0, 0, 0, 0, comm,
                          nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclPutSignal(nullptr, 100, ncclFloat32, 1, windows[0], 0, 0, 0, 0, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclPutSignal(data.data(), 100, ncclFloat32, 1, windows[1], 0, 0, 0, 0, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclPutSignal(data.data(), 100, ncclFloat32, 9, windows[0], 0, 0, 0, 0, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclSignal(9, 0, 0, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclSignal(1, 1, 0, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclSignal(1, 0, 1, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclWaitSignal(1, nullptr, comm, nullptr), ncclInvalidArgument);
  wait.peer = 9;
  EXPECT_EQ(ncclWaitSignal(1, &wait, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclWaitSignal(0, nullptr, comm, nullptr), ncclSuccess);
  close(group, windows);
}

}  // namespace
}  // namespace gantry
