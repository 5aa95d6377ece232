// GANTRY_NCCL_FALLBACK: communicators that NCCL's library carries. The library is a fake.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/compat/nccl_functions.hpp"
#include "tests/compat/nccl_ranks.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using testing::eventually;
using ::testing::HasSubstr;
using testing::NcclRanks;
using ::testing::Not;

// A variable of the environment, until the object ends.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string log_of_fake() {
  void* const handle = ::dlopen(std::getenv("GANTRY_NCCL_FALLBACK"), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return "";
  const auto read = reinterpret_cast<const char* (*)()>(::dlsym(handle, "fake_nccl_log"));
  std::string lines = read();
  ::dlclose(handle);
  return lines;
}

// Ranks whose GPUs do not reach each other.
class NcclFallback : public ::testing::Test {
 protected:
  NcclFallback() : apart_("GANTRY_P2P", "off") { (void)log_of_fake(); }

  Variable apart_;
};

Tensor zeros_of(int device) {
  Tensor data = zeros({8}, {.dtype = DType::f32, .device = Device::cuda(device)});
  synchronize(data.device());
  return data;
}

TEST_F(NcclFallback, GpusWithoutAccessToEachOtherAreNccls) {
  std::vector<Tensor> data{zeros_of(0), zeros_of(1)};
  {
    const NcclRanks group(2);
    group.grouped([&](int rank, ncclComm_t comm) {
      void* const at = data[static_cast<std::size_t>(rank)].data();
      return ncclAllReduce(at, at, 8, ncclFloat32, ncclMax, comm, nullptr);
    });
    EXPECT_EQ(log_of_fake(),
              "init_all rank 0/2 device 0\ninit_all rank 1/2 device 1\n"
              "group_start\n"
              "all_reduce rank 0/2 count 8 type 7 detail 2\n"
              "all_reduce rank 1/2 count 8 type 7 detail 2\n"
              "group_end\n");
    EXPECT_EQ(data[1].to_vector<float>(), std::vector<float>(8, 101));
    int count = 0;
    EXPECT_EQ(ncclCommCount(group.comms[1], &count), ncclSuccess);
    EXPECT_EQ(count, 2);
  }
  std::string ends;
  EXPECT_TRUE(eventually([&] {
    ends += log_of_fake();
    return ends.size() >= 2 * std::string("destroy rank 0/2\n").size();
  }));
  EXPECT_THAT(ends, HasSubstr("destroy rank 0/2\n"));
  EXPECT_THAT(ends, HasSubstr("destroy rank 1/2\n"));
}

TEST_F(NcclFallback, GpusWithAccessAreGantrys) {
  const Variable together("GANTRY_P2P", "on");
  const NcclRanks group(2);
  std::vector<Tensor> data;
  for (int rank = 0; rank < 2; ++rank) data.push_back(ones({8}, {.device = Device::cuda(rank)}));
  group.grouped([&](int rank, ncclComm_t comm) {
    void* const at = data[static_cast<std::size_t>(rank)].data();
    return ncclAllReduce(at, at, 8, ncclFloat32, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(data[0].to_vector<float>(), std::vector<float>(8, 2));
  EXPECT_EQ(log_of_fake(), "");
}

TEST_F(NcclFallback, AGroupHasCallsOfBoth) {
  const NcclRanks theirs(2);
  ::setenv("GANTRY_P2P", "on", 1);
  const NcclRanks own(2);
  std::vector<Tensor> data;
  for (int rank = 0; rank < 4; ++rank) {
    data.push_back(ones({8}, {.device = Device::cuda(rank % 2)}));
    synchronize(data.back().device());
  }
  (void)log_of_fake();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const ncclComm_t comm = rank < 2 ? theirs.comms[rank] : own.comms[rank - 2];
    void* const at = data[rank].data();
    ASSERT_EQ(ncclAllReduce(at, at, 8, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(data[0].to_vector<float>(), std::vector<float>(8, 101));
  EXPECT_EQ(data[2].to_vector<float>(), std::vector<float>(8, 2));
  EXPECT_THAT(log_of_fake(), HasSubstr("group_start\nall_reduce rank 0/2"));
}

TEST_F(NcclFallback, AGroupThatFailsEndsNcclsGroup) {
  const NcclRanks theirs(2);
  const Tensor data = zeros_of(0);
  (void)log_of_fake();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclSend(data.data(), 8, ncclFloat32, 1, theirs.comms[0], nullptr), ncclSuccess);
  EXPECT_EQ(ncclSend(data.data(), 8, ncclFloat32, 1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(log_of_fake(), "group_start\nsend rank 0/2 count 8 type 7 detail 1\ngroup_end\n");
}

TEST_F(NcclFallback, EveryOperationGetsItsArguments) {
  const NcclRanks group(2);
  const ncclComm_t comm = group.comms[1];
  const Tensor data = zeros_of(1);
  void* const at = data.data();
  (void)log_of_fake();
  EXPECT_EQ(ncclReduce(at, at, 4, ncclFloat32, ncclMin, 1, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclBroadcast(at, at, 4, ncclFloat32, 1, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclBcast(at, 4, ncclFloat32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclAllGather(at, at, 4, ncclFloat32, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclReduceScatter(at, at, 4, ncclFloat32, ncclAvg, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGather(at, at, 4, ncclFloat32, 1, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclScatter(at, at, 4, ncclFloat32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(at, 4, ncclFloat32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(log_of_fake(),
            "reduce rank 1/2 count 4 type 7 detail 13\n"
            "broadcast rank 1/2 count 4 type 7 detail 1\n"
            "broadcast rank 1/2 count 4 type 7 detail 0\n"
            "all_gather rank 1/2 count 4 type 7 detail 0\n"
            "reduce_scatter rank 1/2 count 4 type 7 detail 4\n"
            "gather rank 1/2 count 4 type 7 detail 1\n"
            "scatter rank 1/2 count 4 type 7 detail 0\n"
            "recv rank 1/2 count 4 type 7 detail 0\n");
  EXPECT_EQ(ncclAlltoAll(at, at, 4, ncclFloat32, comm, nullptr), ncclInvalidUsage);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclAlltoAll: expected an NCCL with ncclAlltoAll, but got version 2.28.9");
}

TEST_F(NcclFallback, OperatorsAreNccls) {
  const NcclRanks group(2);
  const Tensor data = zeros_of(0);
  (void)log_of_fake();
  float factor = 2;
  ncclRedOp_t op = ncclSum;
  EXPECT_EQ(
      ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, group.comms[0]),
      ncclSuccess);
  EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 8, ncclFloat32, op, group.comms[0], nullptr),
            ncclSuccess);
  EXPECT_EQ(ncclRedOpDestroy(op, group.comms[0]), ncclSuccess);
  EXPECT_EQ(log_of_fake(),
            "create_operator rank 0/2\nall_reduce rank 0/2 count 8 type 7 detail 77\n"
            "destroy_operator 77 rank 0/2\n");
}

TEST_F(NcclFallback, NcclsErrorsReachTheProgram) {
  const NcclRanks group(2);
  const Tensor data = zeros_of(0);
  {
    const Variable fails("FAKE_NCCL_FAILS", "all_reduce");
    EXPECT_EQ(
        ncclAllReduce(data.data(), data.data(), 8, ncclFloat32, ncclSum, group.comms[0], nullptr),
        ncclSystemError);
    EXPECT_STREQ(ncclGetLastError(nullptr),
                 "ncclAllReduce: ncclAllReduce of NCCL: fake system error: the fake's detail");
  }
  const Variable fails("FAKE_NCCL_FAILS", "async");
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(group.comms[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclRemoteError);
}

TEST_F(NcclFallback, PartsOfACommunicatorAreMadeAnew) {
  std::vector<ncclComm_t> comms(4);
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 4; ++rank) {
    set_device(Device::cuda(rank));
    ASSERT_EQ(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 4, id, rank), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_THAT(log_of_fake(), HasSubstr("init rank 3/4\n"));
  std::vector<ncclComm_t> parts(4);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 4; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_EQ(ncclCommSplit(comms[at], rank == 3 ? -1 : rank / 2, 0, &parts[at], nullptr),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  const std::string lines = log_of_fake();
  EXPECT_THAT(lines, HasSubstr("init rank 0/2\n"));
  EXPECT_THAT(lines, HasSubstr("init rank 1/2\n"));
  EXPECT_THAT(lines, Not(HasSubstr("/1\n")));  // a rank alone is gantry's
  EXPECT_EQ(parts[3], nullptr);
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ncclCommDestroy(parts[rank]), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  set_device(Device::cuda(0));
}

TEST_F(NcclFallback, AnAbortReachesNccl) {
  NcclRanks group(2);
  (void)log_of_fake();
  EXPECT_EQ(ncclCommAbort(group.comms[0]), ncclSuccess);
  EXPECT_EQ(log_of_fake(), "abort rank 0/2\n");
  EXPECT_EQ(ncclCommAbort(group.comms[1]), ncclSuccess);
  group.comms.clear();
}

// Two processes. `variables` stands in front of the program's name in a shell.
std::vector<testing::Outcome> run_two(const std::string& variables, bool is_spread) {
  const testing::TemporaryFolder folder;
  testing::RankProcesses processes(
      {.ranks = 2,
       .argv = {"sh", "-c",
                variables + " exec " + GANTRY_TEST_PROGRAM_DIR + "/nccl_fallback_actor " +
                    (folder.path() / "id").string()},
       .environment = {{"GANTRY_NCCL_REPORT", "1"},
                       {"GANTRY_P2P", is_spread ? "on" : "off"},
                       {"GANTRY_COLL_TIMEOUT", "20"}},
       .is_spread = is_spread});
  std::vector<testing::Outcome> outcomes;
  for (int rank = 0; rank < 2; ++rank) outcomes.push_back(processes[rank].wait());
  return outcomes;
}

TEST(NcclFallbackReport, TellsOfRanksOnSeveralMachines) {
  for (const testing::Outcome& outcome : run_two("", true)) {
    EXPECT_EQ(outcome.out, "101\n") << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("  1 communicator handed to NCCL 2.28.9: ranks on several "
                                       "machines\n"));
    EXPECT_THAT(outcome.err, HasSubstr("400 bytes, 1 by NCCL\n"));
  }
}

TEST(NcclFallbackReport, TellsOfGpusWithoutAccess) {
  for (const testing::Outcome& outcome : run_two("", false)) {
    EXPECT_EQ(outcome.out, "101\n") << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("  1 communicator handed to NCCL 2.28.9: GPUs without "
                                       "access to each other\n"));
  }
}

TEST(NcclFallbackReport, OneRankWithoutTheLibraryKeepsAll) {
  for (const testing::Outcome& outcome :
       run_two("[ $RANK = 0 ] || export GANTRY_NCCL_FALLBACK=/none.so;", false)) {
    EXPECT_EQ(outcome.out, "2\n") << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("GANTRY_NCCL_FALLBACK: communicator kept by gantry: rank 1: "
                                       "failed to load /none.so: cannot open"));
    EXPECT_THAT(outcome.err, HasSubstr("  1 communicator kept by gantry: rank 1: failed to load"));
  }
}

TEST(NcclFallbackReport, RanksHaveOneVersion) {
  for (const testing::Outcome& outcome :
       run_two("[ $RANK = 0 ] || export FAKE_NCCL_VERSION=22907;", false)) {
    EXPECT_EQ(outcome.out, "2\n") << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("rank 1: it has NCCL 2.29.7, and rank 0 has 2.28.9\n"));
  }
}

TEST(NcclFallbackReport, AnOldVersionIsNone) {
  for (const testing::Outcome& outcome : run_two("export FAKE_NCCL_VERSION=21703;", false)) {
    EXPECT_EQ(outcome.out, "2\n") << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("expected NCCL 2.18 or later, but got 2.17.3\n"));
  }
}

}  // namespace
}  // namespace gantry
