// Arrays in page-locked memory of the host, which NCCL's kernels can read and write.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/compat/nccl_drawn_operation.hpp"
#include "tests/compat/nccl_elements.hpp"
#include "tests/compat/nccl_functions.hpp"
#include "tests/compat/nccl_ranks.hpp"

namespace gantry {
namespace {

using testing::DrawnOperation;
using testing::elements_of;
using testing::for_each_type;
using testing::NcclRanks;
using testing::ranks;

// Memory of a device, or page-locked memory of the host, with the given elements.
class AnyArray {
 public:
  template <class T>
  AnyArray(bool is_of_host, int device, const std::vector<T>& elements) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(elements.data());
    array_ = tensor(std::vector<std::uint8_t>(bytes, bytes + elements.size() * sizeof(T)),
                    {.dtype = DType::u8});
    array_ = is_of_host ? array_.pin_memory() : array_.to(Device::cuda(device));
  }
  [[nodiscard]] void* data() const { return array_.data(); }
  // Precondition: the device has done its work.
  template <class T>
  [[nodiscard]] std::vector<T> elements() const {
    const auto bytes = array_.to_vector<std::uint8_t>();
    std::vector<T> elements(bytes.size() / sizeof(T));
    if (!elements.empty()) std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }

 private:
  Tensor array_;
};

void synchronize_ranks() {
  for (int rank = 0; rank < ranks(); ++rank) synchronize(Device::cuda(rank));
}

TEST(NcclHostArrays, DrawnOperationsReadAndWriteThem) {
  const NcclRanks group(ranks());
  const int size = group.size();
  std::vector<int> all(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  std::mt19937 draw(11);
  for (int step = 0; step < 120; ++step) {
    const DrawnOperation operation(draw);
    const std::size_t most = DrawnOperation::kMost * static_cast<std::size_t>(size);
    std::vector<AnyArray> in;
    std::vector<AnyArray> out;
    for (int rank = 0; rank < size; ++rank) {
      const bool one_is = step % 3 != 0 || draw() % 2 == 0;
      in.emplace_back(one_is && draw() % 2 == 0, rank, DrawnOperation::inputs(rank, size));
      out.emplace_back(one_is, rank, std::vector<std::int32_t>(most, -1));
    }
    const auto expect = [](ncclResult_t result) {
      ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    };
    expect(ncclGroupStart());
    for (int rank = 0; rank < size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      operation.submit(rank, size, in[at].data(), out[at].data(), group.comms[at], nullptr, expect);
    }
    expect(ncclGroupEnd());
    synchronize_ranks();
    for (int rank = 0; rank < size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      auto wanted = operation.expected(rank, all);
      wanted.resize(most, -1);
      ASSERT_EQ(out[at].elements<std::int32_t>(), wanted)
          << "step " << step << ", rank " << rank << ": " << operation.describe();
      ASSERT_EQ(in[at].elements<std::int32_t>(), DrawnOperation::inputs(rank, size));
    }
  }
}

// In place, with an operator that has work before it and one that has work after it.
TEST(NcclHostArrays, ReductionsOfAllTypesAreThoseOfDevices) {
  constexpr std::size_t kCount = 257;
  const NcclRanks group(ranks());
  for_each_type([&](ncclDataType_t type, const char* name, auto zero) {
    using T = decltype(zero);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg}) {
      std::vector<AnyArray> of_host;
      std::vector<AnyArray> of_device;
      for (int rank = 0; rank < group.size(); ++rank) {
        of_host.emplace_back(true, rank, elements_of<T>(rank, kCount));
        of_device.emplace_back(false, rank, elements_of<T>(rank, kCount));
      }
      for (const auto* arrays : {&of_host, &of_device}) {
        group.grouped([&](int rank, ncclComm_t comm) {
          void* const data = (*arrays)[static_cast<std::size_t>(rank)].data();
          return ncclAllReduce(data, data, kCount, type, op, comm, nullptr);
        });
      }
      synchronize_ranks();
      for (std::size_t rank = 0; rank < of_host.size(); ++rank) {
        const auto bytes = of_device[rank].template elements<std::uint8_t>();
        EXPECT_EQ(of_host[rank].template elements<std::uint8_t>(), bytes) << name << " " << op;
      }
    }
  });
}

// A part of an array in the place of the whole, as NCCL has it.
TEST(NcclHostArrays, PartsOfAnArrayAreInPlace) {
  constexpr std::size_t kCount = 100;
  const NcclRanks group(ranks());
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<AnyArray> gathered;
  std::vector<AnyArray> scattered;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<std::int64_t> own(kCount * size, -1);
    std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(kCount) * rank, kCount, rank);
    gathered.emplace_back(true, rank, own);
    scattered.emplace_back(true, rank, std::vector<std::int64_t>(kCount * size, rank + 1));
  }
  const auto part = [&](const AnyArray& array, int rank) {
    return static_cast<std::int64_t*>(array.data()) + kCount * static_cast<std::size_t>(rank);
  };
  group.grouped([&](int rank, ncclComm_t comm) {
    const AnyArray& array = gathered[static_cast<std::size_t>(rank)];
    return ncclAllGather(part(array, rank), array.data(), kCount, ncclInt64, comm, nullptr);
  });
  group.grouped([&](int rank, ncclComm_t comm) {
    const AnyArray& array = scattered[static_cast<std::size_t>(rank)];
    return ncclReduceScatter(array.data(), part(array, rank), kCount, ncclInt64, ncclSum, comm,
                             nullptr);
  });
  synchronize_ranks();
  const auto sum = static_cast<std::int64_t>(size * (size + 1) / 2);
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto all = gathered[rank].elements<std::int64_t>();
    const auto own = scattered[rank].elements<std::int64_t>();
    for (std::size_t i = 0; i < kCount * size; ++i) {
      ASSERT_EQ(all[i], static_cast<std::int64_t>(i / kCount)) << rank << " at " << i;
      const bool is_own = i / kCount == rank;
      ASSERT_EQ(own[i], is_own ? sum : static_cast<std::int64_t>(rank + 1)) << rank << " at " << i;
    }
  }
}

// A stream's later work sees what an earlier call has written, without the host's waiting.
TEST(NcclHostArrays, CallsAreInTheOrderOfTheirStream) {
  constexpr std::size_t kCount = 5000;
  const NcclRanks group(ranks());
  std::vector<AnyArray> arrays;
  for (int rank = 0; rank < group.size(); ++rank) {
    arrays.emplace_back(true, rank, std::vector<std::int64_t>(kCount, 1));
  }
  std::int64_t wanted = 1;
  for (int step = 0; step < 10; ++step) {
    group.grouped([&](int rank, ncclComm_t comm) {
      void* const data = arrays[static_cast<std::size_t>(rank)].data();
      return ncclAllReduce(data, data, kCount, ncclInt64, ncclSum, comm, nullptr);
    });
    wanted *= group.size();
  }
  synchronize_ranks();
  for (const AnyArray& array : arrays) {
    EXPECT_EQ(array.elements<std::int64_t>(), std::vector<std::int64_t>(kCount, wanted));
  }
}

// A replay reads what the host has written since, a reduction in place its own result.
TEST(NcclHostArrays, GraphsReplayTheirCopies) {
  constexpr std::size_t kCount = 300;
  const NcclRanks group(ranks());
  std::vector<AnyArray> sums;
  std::vector<AnyArray> sent;
  std::vector<AnyArray> received;
  CaptureOptions options;
  for (int rank = 0; rank < group.size(); ++rank) {
    sums.emplace_back(true, rank, std::vector<std::int64_t>(kCount, 1));
    sent.emplace_back(true, rank, std::vector<std::int64_t>(kCount, rank));
    received.emplace_back(true, rank, std::vector<std::int64_t>(kCount, -1));
    if (rank > 0) options.devices.push_back(Device::cuda(rank));
  }
  Graph graph;
  {
    GraphCapture capture(graph, options);
    group.grouped([&](int rank, ncclComm_t comm) {
      const auto at = static_cast<std::size_t>(rank);
      auto* const stream =
          static_cast<cudaStream_t>(Stream::current(Device::cuda(rank)).native().handle);
      EXPECT_EQ(
          ncclAllReduce(sums[at].data(), sums[at].data(), kCount, ncclInt64, ncclSum, comm, stream),
          ncclSuccess);
      EXPECT_EQ(
          ncclSend(sent[at].data(), kCount, ncclInt64, (rank + 1) % group.size(), comm, stream),
          ncclSuccess);
      return ncclRecv(received[at].data(), kCount, ncclInt64,
                      (rank + group.size() - 1) % group.size(), comm, stream);
    });
    capture.end();
  }
  std::int64_t wanted = 1;
  for (int replay = 0; replay < 3; ++replay) {
    for (int rank = 0; rank < group.size(); ++rank) {
      auto* const data = static_cast<std::int64_t*>(sent[static_cast<std::size_t>(rank)].data());
      std::fill_n(data, kCount, 10 * replay + rank);
    }
    graph.replay();
    synchronize_ranks();
    wanted *= group.size();
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const int from = (rank + group.size() - 1) % group.size();
      EXPECT_EQ(sums[at].elements<std::int64_t>(), std::vector<std::int64_t>(kCount, wanted));
      EXPECT_EQ(received[at].elements<std::int64_t>(),
                std::vector<std::int64_t>(kCount, 10 * replay + from));
    }
  }
}

// The device has no memory for an array in the place of the host's: the group runs nothing.
TEST(NcclHostArrays, AFullDeviceIsAnErrorThatChangesNothing) {
  constexpr std::size_t kMany = std::size_t{1} << 24;
  const NcclRanks group(ranks());
  const AnyArray small(true, 0, std::vector<std::int64_t>(10, 7));
  const AnyArray large(true, 0, std::vector<std::int64_t>(kMany, 7));
  const double before = memory::fraction(Device::cuda(0));
  memory::empty_cache();
  const auto held = static_cast<double>(memory::reserved(Device::cuda(0)));
  const auto whole = static_cast<double>(memory::mem_get_info(Device::cuda(0)).total);
  memory::set_fraction((held + 32e6) / whole, Device::cuda(0));
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(
      ncclAllReduce(small.data(), small.data(), 10, ncclInt64, ncclSum, group.comms[0], nullptr),
      ncclSuccess);
  EXPECT_EQ(
      ncclAllReduce(large.data(), large.data(), kMany, ncclInt64, ncclSum, group.comms[0], nullptr),
      ncclUnhandledCudaError);
  EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
  memory::set_fraction(before, Device::cuda(0));
  synchronize_ranks();
  EXPECT_EQ(small.elements<std::int64_t>(), std::vector<std::int64_t>(10, 7));
  EXPECT_EQ(large.elements<std::int64_t>(), std::vector<std::int64_t>(kMany, 7));
}

TEST(NcclHostArrays, OrdinaryMemoryOfTheHostIsRefused) {
  const NcclRanks group(ranks());
  std::vector<float> ordinary(8);
  EXPECT_EQ(ncclAllReduce(ordinary.data(), ordinary.data(), 8, ncclFloat32, ncclSum, group.comms[0],
                          nullptr),
            ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("memory of cuda:0"), std::string::npos)
      << ncclGetLastError(nullptr);
}

}  // namespace
}  // namespace gantry
