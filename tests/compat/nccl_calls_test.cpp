// ncclGroupStart() and ncclGroupEnd(): what a group holds, its streams, its errors, and captures.
#include <gtest/gtest.h>

#include <vector>

#include "tests/compat/nccl_elements.hpp"
#include "tests/compat/nccl_ranks.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::DeviceArray;
using testing::elements_of;
using testing::NcclRanks;
using testing::ranks;
using testing::reduced;

// Floats of every rank, and their sum over the ranks.
struct Floats {
  Floats(int size, std::size_t count) : count(count) {
    std::vector<std::vector<float>> all;
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(elements_of<float>(rank, count));
      in.emplace_back(rank, all.back());
      out.emplace_back(rank, std::vector<float>(count));
    }
    sum = reduced(ncclSum, all);
  }
  ncclResult_t all_reduce(int rank, ncclComm_t comm, void* stream = nullptr) const {
    const auto at = static_cast<std::size_t>(rank);
    return ncclAllReduce(in[at].data(), out[at].data(), count, ncclFloat32, ncclSum, comm,
                         static_cast<cudaStream_t>(stream));
  }
  // Sends to the next rank and receives from the previous one.
  ncclResult_t shift(int rank, ncclComm_t comm, void* stream = nullptr) const {
    const auto at = static_cast<std::size_t>(rank);
    const int size = static_cast<int>(in.size());
    const auto on = static_cast<cudaStream_t>(stream);
    if (const auto sent =
            ncclSend(in[at].data(), count, ncclFloat32, (rank + 1) % size, comm, on)) {
      return sent;
    }
    return ncclRecv(out[at].data(), count, ncclFloat32, (rank + size - 1) % size, comm, on);
  }
  void expect_sums() const {
    for (const DeviceArray& one : out) EXPECT_TRUE(one.elements<float>() == sum);
  }
  void expect_shifted() const {
    const int size = static_cast<int>(in.size());
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(out[static_cast<std::size_t>(rank)].elements<float>() ==
                  elements_of<float>((rank + size - 1) % size, count));
    }
  }
  void expect_nothing_written() const {
    for (const DeviceArray& one : out) {
      EXPECT_TRUE(one.elements<float>() == std::vector<float>(count));
    }
  }

  std::size_t count;
  std::vector<DeviceArray> in;
  std::vector<DeviceArray> out;
  std::vector<float> sum;
};

// A current stream of each device, none of them the default one.
class OwnStreams {
 public:
  explicit OwnStreams(int size) : guard_(make(size)) {}
  [[nodiscard]] static void* of(int rank) {
    return Stream::current(Device::cuda(rank)).native_handle();
  }

 private:
  static std::vector<Stream> make(int size) {
    std::vector<Stream> streams;
    for (int rank = 0; rank < size; ++rank) {
      streams.push_back(Stream::from_pool(Device::cuda(rank)));
    }
    return streams;
  }
  MultiStreamGuard guard_;
};

TEST(NcclGroup, HoldsCallsOfSeveralCommunicators) {
  const NcclRanks first;
  const NcclRanks second;
  const Floats sums(first.size(), 5'000);
  const Floats others(first.size(), 70'000);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < first.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(sums.all_reduce(rank, first.comms[at]), ncclSuccess);
    EXPECT_EQ(others.all_reduce(rank, second.comms[at]), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  sums.expect_sums();
  others.expect_sums();
}

TEST(NcclGroup, HoldsCollectivesAndMessages) {
  const NcclRanks group;
  const Floats sums(group.size(), 5'000);
  const Floats messages(group.size(), 70'000);
  const Floats more(group.size(), 3);
  group.grouped([&](int rank, ncclComm_t comm) {
    EXPECT_EQ(messages.shift(rank, comm), ncclSuccess);
    EXPECT_EQ(sums.all_reduce(rank, comm), ncclSuccess);
    return more.shift(rank, comm);
  });
  sums.expect_sums();
  messages.expect_shifted();
  more.expect_shifted();
}

TEST(NcclGroup, RunsWhenTheOutermostEnds) {
  const NcclRanks group;
  const Floats sums(group.size(), 100);
  group.grouped([&](int rank, ncclComm_t comm) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sums.all_reduce(rank, comm), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    sums.expect_nothing_written();
    return ncclSuccess;
  });
  sums.expect_sums();
}

TEST(NcclGroup, MayBeEmptyAndMustBeOpen) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_NE(ncclGroupEnd(), ncclSuccess);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclGroupEnd: expected an open group, but ncclGroupStart opened none");
}

// Ranks would else wait for the part of a group that one of them does not have.
TEST(NcclGroup, RunsNothingIfACallIsRefused) {
  const NcclRanks group;
  const Floats sums(group.size(), 100);
  for (const bool is_wrong_memory : {false, true}) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sums.all_reduce(0, group.comms[0]), ncclSuccess);
    std::vector<float> host(4);
    void* const place = is_wrong_memory ? static_cast<void*>(host.data()) : nullptr;
    EXPECT_EQ(ncclBcast(place, 4, ncclFloat32, 0, group.comms.back(), nullptr),
              ncclInvalidArgument);
    const std::string text = ncclGetLastError(nullptr);
    EXPECT_NE(text.find(is_wrong_memory ? "a host address" : "got null"), text.npos) << text;
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  }
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(sums.all_reduce(0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  sums.expect_nothing_written();
  // The next group is not concerned.
  group.grouped([&](int rank, ncclComm_t comm) { return sums.all_reduce(rank, comm); });
  sums.expect_sums();
}

TEST(NcclGroup, EachCallRunsOnItsStream) {
  const NcclRanks group;
  const OwnStreams streams(group.size());
  const Floats sums(group.size(), 100);
  const Floats messages(group.size(), 70'000);
  std::vector<Stream> others;
  for (int rank = 0; rank < group.size(); ++rank) {
    synchronize(Device::cuda(rank));
    others.push_back(Stream::from_pool(Device::cuda(rank)));
  }
  {
    // The messages of the last rank wait for its stream; the collective on another one does not.
    const testing::StreamHold hold(others.back());
    group.grouped([&](int rank, ncclComm_t comm) {
      EXPECT_EQ(sums.all_reduce(rank, comm, OwnStreams::of(rank)), ncclSuccess);
      void* const other = others[static_cast<std::size_t>(rank)].native_handle();
      return messages.shift(rank, comm, other);
    });
    sums.expect_sums();
    EXPECT_FALSE(others.back().query());
  }
  for (const Stream& stream : others) stream.synchronize();
  messages.expect_shifted();
}

TEST(NcclGroup, IsCapturedIntoAGraph) {
  const NcclRanks group;
  const OwnStreams streams(group.size());
  const Floats sums(group.size(), 1'000);
  const Floats messages(group.size(), 2'000);
  std::vector<DeviceArray> bytes;
  std::vector<Device> others;
  for (int rank = 0; rank < group.size(); ++rank) {
    bytes.emplace_back(rank, std::vector<std::uint8_t>(8, 0x38));  // 1 as e4m3
    if (rank > 0) others.push_back(Device::cuda(rank));
  }
  Graph graph;
  {
    CaptureOptions options;
    options.devices = others;
    GraphCapture capture(graph, options);
    group.grouped([&](int rank, ncclComm_t comm) {
      void* const stream = OwnStreams::of(rank);
      void* const place = bytes[static_cast<std::size_t>(rank)].data();
      EXPECT_EQ(sums.all_reduce(rank, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclAllReduce(place, place, 8, ncclFloat8e4m3, ncclSum, comm,
                              static_cast<cudaStream_t>(stream)),
                ncclSuccess);
      return messages.shift(rank, comm, stream);
    });
    capture.end();
  }
  for (int replay = 0; replay < 3; ++replay) graph.replay();
  for (int rank = 0; rank < group.size(); ++rank) synchronize(Device::cuda(rank));
  sums.expect_sums();
  messages.expect_shifted();
  float wanted = 1;
  for (int replay = 0; replay < 3; ++replay) wanted *= static_cast<float>(group.size());
  for (const DeviceArray& one : bytes) {
    EXPECT_EQ(static_cast<float>(one.elements<testing::E4m3>().front()), wanted);
  }
}

TEST(NcclCalls, WrongArgumentsAreNamed) {
  const NcclRanks group;
  const DeviceArray data(0, std::vector<float>(4));
  ncclComm_t comm = group.comms[0];
  const auto expect = [](ncclResult_t result, const std::string& text) {
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_EQ(ncclGetLastError(nullptr), text);
  };
  const std::string past = std::to_string(group.size());
  expect(ncclBroadcast(data.data(), data.data(), 4, ncclFloat32, group.size(), comm, nullptr),
         "ncclBroadcast: expected a rank from 0 to " + std::to_string(group.size() - 1) +
             ", but got " + past);
  expect(
      ncclReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, -1, comm, nullptr),
      "ncclReduce: expected a rank from 0 to " + std::to_string(group.size() - 1) + ", but got -1");
  expect(ncclAllReduce(data.data(), data.data(), 4, ncclNumTypes, ncclSum, comm, nullptr),
         "ncclAllReduce: expected a type from 0 to 11, but got 12");
  expect(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclNumOps, comm, nullptr),
         "ncclAllReduce: expected an operator of this communicator, but got number 5");
  expect(ncclSend(nullptr, 4, ncclFloat32, 0, comm, nullptr),
         "ncclSend: expected memory for 4 elements, but got null");
  expect(ncclAllGather(data.data(), data.data(), SIZE_MAX / 2, ncclFloat32, comm, nullptr),
         "ncclAllGather: expected a number of elements that memory can have, but got " +
             std::to_string(SIZE_MAX / 2));
  // Memory of the host, and of a type that is computed by kernels around the collective.
  std::vector<float> host(4);
  for (const ncclDataType_t type : {ncclFloat32, ncclFloat8e4m3}) {
    EXPECT_EQ(ncclAllReduce(host.data(), data.data(), 4, type, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data.data(), host.data(), 4, type, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclReduceScatter(data.data(), host.data(), 1, type, ncclSum, comm, nullptr),
              ncclInvalidArgument);
  }
  if (group.size() > 1) {
    const DeviceArray other(1, std::vector<float>(4));
    expect(ncclAllReduce(other.data(), other.data(), 4, ncclFloat32, ncclSum, comm, nullptr),
           "ncclAllReduce: from_blob: expected memory of cuda:0, but got memory of cuda:1");
  }
  // A refused call leaves the group as it was.
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess);
  const Floats sums(group.size(), 100);
  group.grouped([&](int rank, ncclComm_t one) { return sums.all_reduce(rank, one); });
  sums.expect_sums();
}

TEST(NcclCalls, NoElementsNeedNoMemory) {
  const NcclRanks group;
  group.grouped([](int /*rank*/, ncclComm_t comm) {
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclAvg, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat8e5m2, ncclSum, comm, nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(nullptr, nullptr, 0, ncclUint32, ncclMax, comm, nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclAllGather(nullptr, nullptr, 0, ncclInt64, comm, nullptr), ncclSuccess);
    return ncclAlltoAll(nullptr, nullptr, 0, ncclInt64, comm, nullptr);
  });
}

}  // namespace
}  // namespace gantry
