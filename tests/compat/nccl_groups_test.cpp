// Communicators: how they are made, parted, and ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/compat/nccl_ranks.hpp"
#include "tests/support/eventually.hpp"

namespace gantry {
namespace {

using testing::DeviceArray;
using testing::eventually;
using testing::NcclRanks;
using testing::ranks;

#define REQUIRE_RANKS(count) \
  if (ranks() < (count)) GTEST_SKIP() << "needs " << (count) << " devices"

// Runs `body` in a thread of each rank, whose current device is the rank's.
template <class Body>
void on_each_rank(int size, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      set_device(Device::cuda(rank));
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int rank_of(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  return rank;
}
int size_of(ncclComm_t comm) {
  int size = -1;
  EXPECT_EQ(ncclCommCount(comm, &size), ncclSuccess);
  return size;
}
int device_of(ncclComm_t comm) {
  int device = -1;
  EXPECT_EQ(ncclCommCuDevice(comm, &device), ncclSuccess);
  return device;
}
ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

// One thread reduces 1, 2, … of all ranks.
void expect_sum(const std::vector<ncclComm_t>& comms) {
  std::vector<DeviceArray> data;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (ncclComm_t comm : comms) {
    data.emplace_back(device_of(comm), std::vector<std::int32_t>(10, rank_of(comm) + 1));
    ASSERT_EQ(ncclAllReduce(data.back().data(), data.back().data(), 10, ncclInt32, ncclSum, comm,
                            nullptr),
              ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  const auto size = static_cast<std::int32_t>(comms.size());
  for (const DeviceArray& one : data) {
    EXPECT_EQ(one.elements<std::int32_t>(), std::vector<std::int32_t>(10, size * (size + 1) / 2));
  }
}

void destroy(const std::vector<ncclComm_t>& comms) {
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// NCCL_CONFIG_INITIALIZER of a later version, with members that this one does not know.
struct LaterConfig {
  ncclConfig_t known{.size = sizeof(LaterConfig),
                     .magic = nccl_api::kConfigMagic,
                     .version = 29999,
                     .blocking = std::numeric_limits<int>::min()};
  std::array<int, 40> others{};
};

TEST(NcclInit, DevicesAreInTheOrderOfTheList) {
  std::vector<int> devices;
  for (int rank = 0; rank < ranks(); ++rank) devices.push_back(ranks() - 1 - rank);
  std::vector<ncclComm_t> comms(devices.size());
  ASSERT_EQ(ncclCommInitAll(comms.data(), ranks(), devices.data()), ncclSuccess);
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(rank_of(comms[at]), rank);
    EXPECT_EQ(size_of(comms[at]), ranks());
    EXPECT_EQ(device_of(comms[at]), devices[at]);
    EXPECT_EQ(state_of(comms[at]), ncclSuccess);
  }
  expect_sum(comms);
  destroy(comms);
}

TEST(NcclInit, WrongDevicesAreRefused) {
  std::array<ncclComm_t, 2> comms{};
  const std::array<int, 2> twice{0, 0};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, twice.data()), ncclInvalidArgument);
  const std::array<int, 1> absent{device_count()};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 1, absent.data()), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms.data(), 0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
}

TEST(NcclInit, ThreadsMeetBySeveralIds) {
  std::array<ncclUniqueId, 2> ids{};
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_NE(std::memcmp(&ids[0], &ids[1], sizeof ids[0]), 0);
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
  on_each_rank(ranks(), [&](int rank) {
    LaterConfig config;
    ASSERT_EQ(ncclCommInitRankScalable(&comms[static_cast<std::size_t>(rank)], ranks(), rank, 2,
                                       ids.data(), &config.known),
              ncclSuccess)
        << ncclGetLastError(nullptr);
  });
  expect_sum(comms);
  destroy(comms);
  EXPECT_EQ(ncclCommInitRankScalable(comms.data(), 1, 0, 0, ids.data(), nullptr),
            ncclInvalidArgument);
}

TEST(NcclInit, SettingsMustBeNccls) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  LaterConfig config;
  config.known.magic = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config.known), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclCommInitRankConfig: expected settings of NCCL_CONFIG_INITIALIZER, but got "
               "others");
  config = {};
  config.known.size = 16;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config.known), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, -1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  // The oldest settings that have `blocking`.
  config = {};
  config.known.size = 24;
  set_device(Device::cuda(0));
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config.known), ncclSuccess);
  expect_sum({comm});
  destroy({comm});
}

TEST(NcclInit, AnIdOfAnotherLibraryIsNamed) {
  ncclUniqueId id{};
  std::memset(id.internal, 7, sizeof id.internal);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclCommInitRank: expected an id that gantry's ncclGetUniqueId made, but got "
               "another one; preload the library on every rank");
}

TEST(NcclInit, OneThreadMakesAllRanksInTheBackground) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    LaterConfig config;
    config.known.blocking = 0;
    set_device(Device::cuda(rank));
    ncclComm_t& comm = comms[static_cast<std::size_t>(rank)];
    ASSERT_EQ(ncclCommInitRankConfig(&comm, ranks(), id, rank, &config.known), ncclInProgress);
    // The last rank is absent, so no other rank can be complete.
    if (rank + 1 < ranks()) {
      EXPECT_EQ(state_of(comm), ncclInProgress);
    }
  }
  for (ncclComm_t comm : comms) {
    EXPECT_TRUE(eventually([&] { return state_of(comm) != ncclInProgress; }));
    EXPECT_EQ(state_of(comm), ncclSuccess);
  }
  expect_sum(comms);
  destroy(comms);
}

TEST(NcclSplit, ColorsAndKeysMakeGroups) {
  const NcclRanks parent;
  std::vector<ncclComm_t> parts(parent.comms.size());
  parent.grouped([&](int rank, ncclComm_t comm) {
    return ncclCommSplit(comm, rank % 2, -rank, &parts[static_cast<std::size_t>(rank)], nullptr);
  });
  for (int color = 0; color < 2; ++color) {
    std::vector<ncclComm_t> part;
    // Keys reverse the order.
    for (int rank = ranks() - 1; rank >= 0; --rank) {
      if (rank % 2 != color) continue;
      part.push_back(parts[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(device_of(part.back()), rank);
      EXPECT_EQ(rank_of(part.back()), std::ssize(part) - 1);
    }
    for (ncclComm_t comm : part) EXPECT_EQ(size_of(comm), std::ssize(part));
    if (!part.empty()) expect_sum(part);
  }
  expect_sum(parent.comms);
  destroy(parts);
}

TEST(NcclSplit, ARankWithoutColorGetsNone) {
  const NcclRanks parent;
  std::vector<ncclComm_t> parts(parent.comms.size());
  on_each_rank(ranks(), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(
        ncclCommSplit(parent.comms[at], rank == 0 ? nccl_api::kNoColor : 5, 0, &parts[at], nullptr),
        ncclSuccess);
  });
  EXPECT_EQ(parts[0], nullptr);
  const std::vector<ncclComm_t> others(parts.begin() + 1, parts.end());
  if (!others.empty()) expect_sum(others);
  destroy(others);
  EXPECT_EQ(ncclCommSplit(parent.comms[0], -2, 0, parts.data(), nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(parent.comms[0], 0, 0, nullptr, nullptr), ncclInvalidArgument);
}

TEST(NcclShrink, SurvivorsMakeAGroup) {
  REQUIRE_RANKS(2);
  for (const int flags : {0, nccl_api::kShrinkAborts}) {
    const NcclRanks parent;
    std::array<int, 1> excluded{1};
    std::vector<ncclComm_t> rest(parent.comms.size() - 1);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0, made = 0; rank < ranks(); ++rank) {
      if (rank == excluded[0]) continue;
      ASSERT_EQ(ncclCommShrink(parent.comms[static_cast<std::size_t>(rank)], excluded.data(), 1,
                               &rest[static_cast<std::size_t>(made++)], nullptr, flags),
                ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(device_of(rest.back()), rest.size() == 1 ? 0 : ranks() - 1);
    expect_sum(rest);
    // The old group is usable unless it was aborted.
    if (flags == 0) {
      expect_sum(parent.comms);
    } else {
      EXPECT_TRUE(eventually([&] { return state_of(parent.comms[0]) == ncclRemoteError; }));
    }
    destroy(rest);
  }
}

TEST(NcclGrow, NewRanksJoinByAnId) {
  REQUIRE_RANKS(2);
  const NcclRanks parent(ranks() - 1);
  ncclUniqueId id{};
  ASSERT_EQ(ncclCommGetUniqueId(parent.comms[0], &id), ncclSuccess);
  std::vector<ncclComm_t> grown(static_cast<std::size_t>(ranks()));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < parent.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    set_device(Device::cuda(0));  // an old rank keeps its device
    ASSERT_EQ(
        ncclCommGrow(parent.comms[at], ranks(), rank == 0 ? &id : nullptr, -1, &grown[at], nullptr),
        ncclSuccess);
  }
  set_device(Device::cuda(ranks() - 1));
  ASSERT_EQ(ncclCommGrow(nullptr, ranks(), &id, ranks() - 1, &grown.back(), nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(rank_of(grown[static_cast<std::size_t>(rank)]), rank);
    EXPECT_EQ(device_of(grown[static_cast<std::size_t>(rank)]), rank);
  }
  expect_sum(grown);
  expect_sum(parent.comms);
  destroy(grown);
}

TEST(NcclEnd, OneThreadDestroysRanksInAnyOrder) {
  const auto start = std::chrono::steady_clock::now();
  for (const bool reversed : {false, true}) {
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
    ASSERT_EQ(ncclCommInitAll(comms.data(), ranks(), nullptr), ncclSuccess);
    expect_sum(comms);
    if (reversed) std::reverse(comms.begin(), comms.end());
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    for (ncclComm_t comm : comms) EXPECT_EQ(state_of(comm), ncclSuccess);
    const DeviceArray data(0, std::vector<float>(4));
    EXPECT_EQ(ncclBcast(data.data(), 4, ncclFloat32, 0, comms[0], nullptr), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr),
                 "ncclBcast: expected a communicator in use, but got one that was finalized");
    destroy(comms);
  }
  // A rank that leaves waits ten seconds for the others, unless they leave as well.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
}

TEST(NcclEnd, AHandleThatIsNoneIsNamed) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
  ASSERT_EQ(ncclCommInitAll(comms.data(), ranks(), nullptr), ncclSuccess);
  int count = 0;
  std::array<char, 256> other{};
  for (void* const address : {static_cast<void*>(other.data()), reinterpret_cast<void*>(8)}) {
    EXPECT_EQ(ncclCommCount(static_cast<ncclComm_t>(address), &count), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr),
                 "ncclCommCount: expected a communicator, but got another address");
  }
  EXPECT_EQ(ncclCommCount(nullptr, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comms[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclCommCount: expected a communicator in use, but ncclCommAbort has ended it");
}

TEST(NcclEnd, AbortEndsAPendingCall) {
  REQUIRE_RANKS(2);
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
  ASSERT_EQ(ncclCommInitAll(comms.data(), ranks(), nullptr), ncclSuccess);
  const DeviceArray data(0, std::vector<float>(100'000));
  // The other ranks never come.
  ASSERT_EQ(
      ncclAllReduce(data.data(), data.data(), 100'000, ncclFloat32, ncclSum, comms[0], nullptr),
      ncclSuccess);
  std::thread waiting([] {
    try {
      synchronize(Device::cuda(0));
    } catch (const PeerLostError&) {
    }
  });
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  waiting.join();
  for (std::size_t rank = 1; rank < comms.size(); ++rank) {
    EXPECT_TRUE(eventually([&] { return state_of(comms[rank]) == ncclRemoteError; }));
    EXPECT_EQ(ncclCommAbort(comms[rank]), ncclSuccess);
  }
}

TEST(NcclEnd, RevokeBreaksTheGroupOnEveryRank) {
  REQUIRE_RANKS(2);
  const NcclRanks group;
  ASSERT_EQ(ncclCommRevoke(group.comms.back(), 0), ncclSuccess);
  for (ncclComm_t comm : group.comms) {
    EXPECT_TRUE(eventually([&] { return state_of(comm) == ncclRemoteError; }));
    const DeviceArray data(device_of(comm), std::vector<float>(4));
    EXPECT_EQ(ncclBcast(data.data(), 4, ncclFloat32, 0, comm, nullptr), ncclRemoteError);
  }
}

TEST(NcclSuspend, HasNoOperationsUntilResume) {
  REQUIRE_RANKS(2);
  const NcclRanks group;
  group.grouped([](int, ncclComm_t comm) { return ncclCommSuspend(comm, 0); });
  const DeviceArray data(0, std::vector<float>(4));
  EXPECT_EQ(ncclBcast(data.data(), 4, ncclFloat32, 0, group.comms[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(group.comms[0], 0), ncclInvalidArgument);
  group.grouped([](int, ncclComm_t comm) { return ncclCommResume(comm); });
  expect_sum(group.comms);
}

TEST(NcclTexts, EveryResultHasOne) {
  std::vector<std::string> texts;
  for (int result = 0; result <= ncclTimeout; ++result) {
    texts.emplace_back(ncclGetErrorString(static_cast<ncclResult_t>(result)));
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(99)), "unknown result");
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, nccl_api::kVersion);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace gantry
