// all_reduce, reduce and reduce_scatter: every type and operator against the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/compat/nccl_elements.hpp"
#include "tests/compat/nccl_ranks.hpp"

namespace gantry {
namespace {

using testing::DeviceArray;
using testing::E4m3;
using testing::E5m2;
using testing::elements_of;
using testing::for_each_type;
using testing::NcclRanks;
using testing::ranks;
using testing::reduced;

// How a factor reaches the operator.
enum class FactorFrom { none, host, device };

struct OperatorCase {
  ncclRedOp_t op;
  FactorFrom factor;
  const char* name;
};
constexpr OperatorCase kOperators[] = {
    {ncclSum, FactorFrom::none, "sum"},
    {ncclProd, FactorFrom::none, "prod"},
    {ncclMax, FactorFrom::none, "max"},
    {ncclMin, FactorFrom::none, "min"},
    {ncclAvg, FactorFrom::none, "avg"},
    {ncclSum, FactorFrom::host, "premulsum of host"},
    {ncclSum, FactorFrom::device, "premulsum of device"},
};

// Tests of one type and operator in one group.
template <class T>
class ReductionCase {
 public:
  ReductionCase(const NcclRanks& group, ncclDataType_t type, const OperatorCase& op,
                std::size_t count)
      : group_(group), type_(type), op_(op), count_(count) {
    for (int rank = 0; rank < group.size(); ++rank) {
      factors_.push_back(testing::rounded<T>(static_cast<testing::Accumulator<T>>(rank + 3)));
      factor_places_.emplace_back(rank, std::vector<T>{factors_.back()});
    }
  }

  void all_reduce(bool in_place) {
    prepare(count_);
    run(in_place ? 0 : std::ptrdiff_t{-1}, count_, [&](std::size_t at, ncclRedOp_t op) {
      return ncclAllReduce(in_[at].data(), place(at), count_, type_, op, group_.comms[at], nullptr);
    });
    for (std::size_t at = 0; at < in_.size(); ++at) {
      EXPECT_TRUE(wanted_ == (in_place ? in_ : out_)[at].template elements<T>());
    }
    expect_inputs(in_place);
  }

  void reduce(bool in_place, int root) {
    prepare(count_);
    run(in_place ? 0 : std::ptrdiff_t{-1}, count_, [&](std::size_t at, ncclRedOp_t op) {
      return ncclReduce(in_[at].data(), place(at), count_, type_, op, root, group_.comms[at],
                        nullptr);
    });
    for (std::size_t at = 0; at < in_.size(); ++at) {
      const bool is_root = at == static_cast<std::size_t>(root);
      if (!in_place || is_root) {
        EXPECT_TRUE((is_root ? wanted_ : std::vector<T>(count_)) ==
                    (in_place ? in_ : out_)[at].template elements<T>());
      }
      if (!in_place || !is_root) {
        EXPECT_TRUE(inputs_[at] == in_[at].template elements<T>());
      }
    }
  }

  void reduce_scatter(bool in_place) {
    prepare(count_ * inputs_size());
    run(in_place ? static_cast<std::ptrdiff_t>(count_ * sizeof(T)) : std::ptrdiff_t{-1}, count_,
        [&](std::size_t at, ncclRedOp_t op) {
          return ncclReduceScatter(in_[at].data(), place(at), count_, type_, op, group_.comms[at],
                                   nullptr);
        });
    for (std::size_t at = 0; at < in_.size(); ++at) {
      const auto begin = static_cast<std::ptrdiff_t>(at * count_);
      const auto end = begin + static_cast<std::ptrdiff_t>(count_);
      const std::vector<T> part(wanted_.begin() + begin, wanted_.begin() + end);
      if (in_place) {
        const auto all = in_[at].template elements<T>();
        EXPECT_TRUE(part == std::vector<T>(all.begin() + begin, all.begin() + end));
      } else {
        EXPECT_TRUE(part == out_[at].template elements<T>());
      }
    }
    expect_inputs(in_place);
  }

 private:
  [[nodiscard]] std::size_t inputs_size() const { return group_.comms.size(); }

  void prepare(std::size_t elements) {
    inputs_.clear();
    in_.clear();
    std::vector<std::vector<T>> multiplied;
    for (int rank = 0; rank < group_.size(); ++rank) {
      inputs_.push_back(elements_of<T>(rank, elements));
      in_.emplace_back(rank, inputs_.back());
      multiplied.push_back(testing::multiplied(inputs_.back(), factors_[multiplied.size()]));
    }
    wanted_ = reduced(op_.op, op_.factor == FactorFrom::none ? inputs_ : multiplied);
  }

  // Runs `call` for each rank with its operator. A result in place is `step` bytes further on each
  // rank; a negative step asks for memory of its own.
  template <class Call>
  void run(std::ptrdiff_t step, std::size_t count, Call call) {
    step_ = step;
    out_.clear();
    for (int rank = 0; rank < group_.size(); ++rank) out_.emplace_back(rank, std::vector<T>(count));
    group_.grouped([&](int rank, ncclComm_t comm) {
      const auto at = static_cast<std::size_t>(rank);
      if (op_.factor == FactorFrom::none) return call(at, op_.op);
      ncclRedOp_t op{};
      const bool is_host = op_.factor == FactorFrom::host;
      void* const factor = is_host ? static_cast<void*>(&factors_[at]) : factor_places_[at].data();
      EXPECT_EQ(ncclRedOpCreatePreMulSum(
                    &op, factor, type_, is_host ? ncclScalarHostImmediate : ncclScalarDevice, comm),
                ncclSuccess);
      const ncclResult_t result = call(at, op);
      // A program destroys it after the call, also while the group is open.
      EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
      return result;
    });
  }

  void* place(std::size_t at) const {
    if (step_ < 0) return out_[at].data();
    return static_cast<std::byte*>(in_[at].data()) + step_ * static_cast<std::ptrdiff_t>(at);
  }

  void expect_inputs(bool in_place) const {
    if (in_place) return;
    for (std::size_t at = 0; at < in_.size(); ++at) {
      EXPECT_TRUE(inputs_[at] == in_[at].template elements<T>()) << "input of rank " << at;
    }
  }

  const NcclRanks& group_;
  ncclDataType_t type_;
  OperatorCase op_;
  std::size_t count_;
  std::vector<T> factors_;
  std::vector<DeviceArray> factor_places_;
  std::vector<std::vector<T>> inputs_;
  std::vector<T> wanted_;
  std::vector<DeviceArray> in_;
  std::vector<DeviceArray> out_;
  std::ptrdiff_t step_ = 0;
};

// Calls `with` with a case of each type, operator and number of elements.
template <class With>
void for_each_case(const NcclRanks& group, const std::vector<std::size_t>& counts, With with) {
  for_each_type([&]<class T>(ncclDataType_t type, const char* name, T) {
    for (const OperatorCase& op : kOperators) {
      for (const std::size_t count : counts) {
        SCOPED_TRACE(std::string(name) + " " + op.name + " of " + std::to_string(count) + ", " +
                     std::to_string(group.size()) + " ranks");
        ReductionCase<T> one(group, type, op, count);
        with(one);
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

class NcclReductions : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > ranks()) GTEST_SKIP() << "needs " << GetParam() << " devices";
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclReductions, ::testing::Values(1, 2, 3, 4));

TEST_P(NcclReductions, AllReduceCombinesInRankOrder) {
  const NcclRanks group(GetParam());
  for_each_case(group, {0, 1, 7, 1000}, [](auto& one) {
    one.all_reduce(false);
    one.all_reduce(true);
  });
}

TEST_P(NcclReductions, ReduceWritesOnTheRootAlone) {
  const NcclRanks group(GetParam());
  for (int root = 0; root < group.size(); ++root) {
    for_each_case(group, {root == 0 ? 0u : 1u, 1000}, [&](auto& one) {
      one.reduce(false, root);
      one.reduce(true, root);
    });
  }
}

TEST_P(NcclReductions, ReduceScatterWritesEachRanksPart) {
  const NcclRanks group(GetParam());
  for_each_case(group, {0, 1, 7, 1000}, [](auto& one) {
    one.reduce_scatter(false);
    one.reduce_scatter(true);
  });
}

TEST_P(NcclReductions, LargeArraysAreReducedAsWell) {
  const NcclRanks group(GetParam());
  for_each_case(group, {70'001}, [&](auto& one) {
    one.all_reduce(false);
    one.reduce(true, group.size() - 1);
    one.reduce_scatter(true);
  });
}

TEST(NcclSmallFloats, NanStaysAndInfinityBecomesTheLargest) {
  const NcclRanks group;
  const auto sum_of = [&]<class T>(ncclDataType_t type, T element) {
    std::vector<DeviceArray> data;
    for (int rank = 0; rank < group.size(); ++rank) {
      data.emplace_back(rank, std::vector<T>{rank == group.size() - 1 ? element : T{}});
    }
    group.grouped([&](int rank, ncclComm_t comm) {
      void* const place = data[static_cast<std::size_t>(rank)].data();
      return ncclAllReduce(place, place, 1, type, ncclSum, comm, nullptr);
    });
    return data.front().template elements<T>().front();
  };
  EXPECT_TRUE(std::isnan(static_cast<float>(sum_of(ncclFloat8e4m3, E4m3{0x7f}))));
  EXPECT_TRUE(std::isnan(static_cast<float>(sum_of(ncclFloat8e4m3, E4m3{0xff}))));
  for (const std::uint8_t nan : {0x7d, 0x7e, 0x7f, 0xfd}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(sum_of(ncclFloat8e5m2, E5m2{nan}))));
  }
  EXPECT_EQ(static_cast<float>(sum_of(ncclFloat8e5m2, E5m2{0x7c})), 57344.0f);
  EXPECT_EQ(static_cast<float>(sum_of(ncclFloat8e5m2, E5m2{0xfc})), -57344.0f);
}

// Each pattern goes through f32 and back, and its half and its triple are rounded.
TEST(NcclSmallFloats, EveryPatternIsReadAndRounded) {
  const NcclRanks group(1);
  for_each_type([&]<class T>(ncclDataType_t type, const char* name, T) {
    if constexpr (std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>) {
      std::vector<T> patterns;
      for (int pattern = 0; pattern <= T::kLargest; ++pattern) {
        patterns.push_back({static_cast<std::uint8_t>(pattern)});
        patterns.push_back({static_cast<std::uint8_t>(pattern | 0x80)});
      }
      for (const float factor : {1.0f, 0.5f, 3.0f, 0.0625f, -1.25f}) {
        SCOPED_TRACE(std::string(name) + " times " + std::to_string(factor));
        T scalar = T::nearest(factor);
        ncclRedOp_t op{};
        ASSERT_EQ(
            ncclRedOpCreatePreMulSum(&op, &scalar, type, ncclScalarHostImmediate, group.comms[0]),
            ncclSuccess);
        const DeviceArray data(0, patterns);
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), patterns.size(), type, op, group.comms[0],
                                nullptr),
                  ncclSuccess);
        EXPECT_TRUE(testing::multiplied(patterns, scalar) == data.elements<T>());
        ASSERT_EQ(ncclRedOpDestroy(op, group.comms[0]), ncclSuccess);
      }
    }
  });
}

TEST(NcclPreMulSum, AnOperatorHasOneTypeOneCommunicatorAndAnEnd) {
  const NcclRanks group;
  float factor = 2;
  ncclRedOp_t op{};
  ASSERT_EQ(
      ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, group.comms[0]),
      ncclSuccess);
  EXPECT_GE(op, ncclNumOps);
  const DeviceArray data(0, std::vector<float>(4, 1.0f));
  EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 4, ncclInt32, op, group.comms[0], nullptr),
            ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(group.comms[0]),
               "ncclAllReduce: expected elements of the operator's type f32, but got i32");
  if (group.size() > 1) {
    const DeviceArray other(1, std::vector<float>(4, 1.0f));
    EXPECT_EQ(
        ncclAllReduce(other.data(), other.data(), 4, ncclFloat32, op, group.comms[1], nullptr),
        ncclInvalidArgument);
  }
  ASSERT_EQ(ncclRedOpDestroy(op, group.comms[0]), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, op, group.comms[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(op, group.comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, group.comms[0]), ncclInvalidArgument);
  EXPECT_EQ(
      ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, group.comms[0]),
      ncclInvalidArgument);
}

}  // namespace
}  // namespace gantry
