// Operations of NCCL's interface, by one thread for all ranks, by a thread a rank, and in groups.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/compat/nccl_functions.hpp"
#include "tests/compat/nccl_ranks.hpp"

namespace gantry {
namespace {

using testing::NcclRanks;
using testing::ranks;

TEST(NcclOperations, OneThreadReducesForAllRanks) {
  const NcclRanks group(ranks());
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  for (int rank = 0; rank < ranks(); ++rank) {
    in.push_back(full({1000}, rank + 1, {.dtype = DType::f32, .device = Device::cuda(rank)}));
    out.push_back(zeros({1000}, {.dtype = DType::f32, .device = Device::cuda(rank)}));
  }
  group.grouped([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    return ncclAllReduce(in[at].data(), out[at].data(), 1000, ncclFloat32, ncclSum, comm, nullptr);
  });
  const float sum = static_cast<float>(ranks() * (ranks() + 1)) / 2;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(out[at].to_vector<float>(), std::vector<float>(1000, sum));
    EXPECT_EQ(in[at].to_vector<float>(), std::vector<float>(1000, static_cast<float>(rank + 1)));
  }
}

TEST(NcclOperations, ThreadsMeetByAnId) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      set_device(Device::cuda(rank));
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, ranks(), id, rank), ncclSuccess)
          << ncclGetLastError(nullptr);
      const Tensor data = full({10}, rank, {.dtype = DType::i64, .device = Device::cuda(rank)});
      ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt64, ncclMax, comm, nullptr),
                ncclSuccess)
          << ncclGetLastError(nullptr);
      EXPECT_EQ(data.to_vector<std::int64_t>(), std::vector<std::int64_t>(10, ranks() - 1));
      ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclOperations, OneThreadMeetsInAGroup) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks()));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < ranks(); ++rank) {
    set_device(Device::cuda(rank));
    ASSERT_EQ(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], ranks(), id, rank),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int rank = 0; rank < ranks(); ++rank) {
    int found = -1;
    ASSERT_EQ(ncclCommUserRank(comms[static_cast<std::size_t>(rank)], &found), ncclSuccess);
    EXPECT_EQ(found, rank);
  }
  for (ncclComm_t comm : comms) ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclCommDestroy: expected a communicator in use, but ncclCommDestroy has ended it");
}

TEST(NcclOperations, MessagesOfAGroupGoBothWays) {
  const NcclRanks group(ranks());
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  for (int rank = 0; rank < ranks(); ++rank) {
    in.push_back(full({1 << 18}, rank, {.dtype = DType::i32, .device = Device::cuda(rank)}));
    out.push_back(zeros({1 << 18}, {.dtype = DType::i32, .device = Device::cuda(rank)}));
  }
  group.grouped([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    const int next = (rank + 1) % ranks();
    const int previous = (rank + ranks() - 1) % ranks();
    if (const auto sent = ncclSend(in[at].data(), 1 << 18, ncclUint32, next, comm, nullptr))
      return sent;
    return ncclRecv(out[at].data(), 1 << 18, ncclUint32, previous, comm, nullptr);
  });
  for (int rank = 0; rank < ranks(); ++rank) {
    const int previous = (rank + ranks() - 1) % ranks();
    EXPECT_EQ(out[static_cast<std::size_t>(rank)].to_vector<std::int32_t>(),
              std::vector<std::int32_t>(1 << 18, previous));
  }
}

}  // namespace
}  // namespace gantry
