// Coalesced forms: the bits of the single ones, in few launches.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using comm::CoalesceOptions;
using testing::all_tunings;
using testing::expect_throws;
using testing::FaultDriver;
using testing::TuningScope;

class CommCoalescedTest : public testing::CommFixture {
 protected:
  // Many sizes, several dtypes, empty, 0-dim and strided tensors.
  static std::vector<Tensor> made_list(Device device, int rank) {
    std::vector<Tensor> list;
    Generator generator(Device::cpu(), 40 + static_cast<std::uint64_t>(rank));
    for (const std::int64_t length : lengths()) {
      if (length > 5000) continue;
      list.push_back(rand({length}, {}, &generator).sub(0.5).mul(100).to(device));
      list.push_back(randint(-9, 9, {length}, {.dtype = i16}, &generator).to(device));
      list.push_back(rand({length}, {}, &generator).to(bf16).to(device));
    }
    list.push_back(ramp({}, device, rank));
    list.push_back(ramp({4, 0, 2}, device, rank, i64));
    list.push_back(ramp({30, 40}, device, rank).t());
    return list;
  }

  static std::vector<CoalesceOptions> all_options() {
    return {{},
            {.buffer_bytes = 1},
            {.buffer_bytes = 5000},
            {.separate_storages = true},
            {.buffer_bytes = 5000, .separate_storages = true}};
  }
};

TEST_F(CommCoalescedTest, BroadcastGivesEveryDeviceTheInputsBits) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const CoalesceOptions& options : all_options()) {
      for (const int count : {1, 2, 8}) {
        std::vector<Device> to = devices(count);
        to.push_back(to.back());
        const std::vector<Tensor> list = made_list(to.front(), 1);
        const auto copies = comm::broadcast_coalesced(list, to, options);
        ASSERT_EQ(copies.size(), to.size());
        for (std::size_t d = 0; d < to.size(); ++d) {
          ASSERT_EQ(copies[d].size(), list.size());
          for (std::size_t i = 0; i < list.size(); ++i) {
            const Tensor& copy = copies[d][i];
            ASSERT_EQ(copy.device(), to[d]);
            ASSERT_EQ(copy.sizes(), list[i].sizes());
            ASSERT_EQ(copy.dtype(), list[i].dtype());
            ASSERT_EQ(bits(copy), bits(list[i])) << "tensor " << i;
            ASSERT_EQ(copy.is_view_of(list[i]), to[d] == to.front() && list[i].storage().defined());
          }
        }
      }
    }
  }
}

TEST_F(CommCoalescedTest, SumsHaveTheBitsOfReduceAdd) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const CoalesceOptions& options : all_options()) {
      for (const int count : {1, 3, 8}) {
        std::vector<std::vector<Tensor>> lists;
        for (const Device device : devices(count)) {
          lists.push_back(made_list(device, static_cast<int>(lists.size())));
        }
        for (const Device destination : {devices(count).front(), devices().back(), Device::cpu()}) {
          const auto sums = comm::reduce_add_coalesced(lists, destination, options);
          for (const Device device : devices()) synchronize(device);
          ASSERT_EQ(sums.size(), lists[0].size());
          for (std::size_t i = 0; i < sums.size(); ++i) {
            std::vector<Tensor> across;
            for (const auto& list : lists) across.push_back(list[i]);
            ASSERT_EQ(sums[i].device(), destination);
            ASSERT_EQ(sums[i].sizes(), across[0].sizes());
            ASSERT_EQ(bits(sums[i]), bits(comm::reduce_add(across, Device::cuda(0)))) << i;
          }
        }
      }
    }
  }
}

TEST_F(CommCoalescedTest, OutputsShareBuffersByDefault) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Tensor> list;
  for (int i = 0; i < 5; ++i) list.push_back(ramp({10 + i}, Device::cuda(0), i));
  const auto together = comm::broadcast_coalesced(list, devices(2));
  const auto apart = comm::broadcast_coalesced(list, devices(2), {.separate_storages = true});
  const auto sums = comm::reduce_add_coalesced({list, list}, Device::cuda(1));
  const auto apart_sums =
      comm::reduce_add_coalesced({list, list}, Device::cuda(1), {.separate_storages = true});
  for (std::size_t i = 1; i < list.size(); ++i) {
    EXPECT_TRUE(together[1][i].is_view_of(together[1][0]));
    EXPECT_TRUE(sums[i].is_view_of(sums[0]));
    EXPECT_FALSE(apart[1][i].is_view_of(apart[1][0]));
    EXPECT_FALSE(apart_sums[i].is_view_of(apart_sums[0]));
    EXPECT_EQ(apart[1][i].storage().bytes(), apart[1][i].nbytes());
  }
}

TEST_F(CommCoalescedTest, AViewOutlivesItsNeighbours) {
  Tensor last;
  {
    std::vector<Tensor> list;
    for (int i = 0; i < 50; ++i) list.push_back(ramp({10 + i}, Device::cuda(0), i));
    last = comm::broadcast_coalesced(list, devices(2)).back()[49];
  }
  const Tensor view = last.narrow(0, 1, 5);
  last = Tensor();
  EXPECT_EQ(view.to_vector<int>(), (std::vector<int>{50, 51, 52, 53, 54}));
}

TEST_F(CommCoalescedTest, MemoryAndViewsOfAViewOutliveIt) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> to = devices(2);
  const std::vector<Tensor> list{ramp({100}, to[0], 1), ramp({4, 5}, to[0], 2)};
  Storage memory;
  Tensor row;
  {
    const auto copies = comm::broadcast_coalesced(list, to);
    memory = copies[1][0].storage();
    row = copies[1][1].select(0, 2);
    EXPECT_TRUE(row.is_view_of(copies[1][1]));
  }
  EXPECT_EQ(memory, row.storage());
  EXPECT_EQ(memory.use_count(), 2) << "one here, and that of the row";
  EXPECT_TRUE(row.cpu().equal(list[1].select(0, 2).cpu()));
  row = Tensor();
  EXPECT_EQ(memory.use_count(), 1);
  const Tensor again = Tensor::from_storage(memory, {100}, {1}, 0, list[0].dtype());
  EXPECT_TRUE(again.cpu().equal(list[0].cpu()));
}

TEST_F(CommCoalescedTest, InputsMayBeOverwrittenAtOnceOnTheirOwnStreams) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const auto n = static_cast<int>(devices().size());
    for (int round = 0; round < 6; ++round) {
      std::vector<std::vector<Tensor>> lists;
      for (int r = 0; r < n; ++r) {
        lists.emplace_back();
        for (int i = 0; i < 6; ++i) {
          const TensorOptions options{.device = devices()[static_cast<std::size_t>(r)]};
          lists.back().push_back(zeros({20, 10 + i}, options));
          if (i == 3) lists.back().back() = lists.back().back().t();
          lists.back().back().fill_(round + r + i);
        }
      }
      std::vector<Tensor> sums = comm::reduce_add_coalesced(lists, Device::cuda(0));
      for (auto& list : lists) {
        for (Tensor& tensor : list) tensor.fill_(-1);
      }
      auto copies = comm::broadcast_coalesced(sums, devices());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i].fill_(-2);
        const int expected = n * (round + static_cast<int>(i)) + n * (n - 1) / 2 + 1;
        for (std::size_t d = 1; d < copies.size(); ++d) {
          copies[d][i].add_(1);
          EXPECT_EQ(copies[d][i].amin().item<int>(), expected);
          EXPECT_EQ(copies[d][i].amax().item<int>(), expected);
        }
      }
    }
  }
}

TEST_F(CommCoalescedTest, HundredsOfTensorsCostAsManyDriverCallsAsOne) {
  GANTRY_REQUIRE_SIM();
  const auto others = static_cast<std::uint64_t>(devices().size() - 1);
  std::vector<std::vector<Tensor>> lists;
  for (const Device device : devices()) {
    lists.emplace_back();
    for (int i = 0; i < 200; ++i) lists.back().push_back(ones({100 + i}, {.device = device}));
  }
  for (int i = 0; i < 2; ++i) {
    (void)comm::broadcast_coalesced(lists[0], devices());
    (void)comm::reduce_add_coalesced(lists, Device::cuda(0));
  }
  for (const Device device : devices()) synchronize(device);
  FaultDriver counting;
  (void)comm::broadcast_coalesced(lists[0], devices());
  EXPECT_LE(counting.calls("wait_event"), 2 * others);
  EXPECT_EQ(counting.calls("copy") + counting.calls("copy_batch"), 0u);
  const std::uint64_t waits = counting.calls("wait_event");
  (void)comm::reduce_add_coalesced(lists, Device::cuda(0));
  EXPECT_EQ(counting.calls("wait_event") - waits, 2 * others);
  EXPECT_EQ(counting.calls("copy") + counting.calls("copy_batch"), 0u);
}

TEST_F(CommCoalescedTest, AllowCastConvertsToTheFirstListsDTypes) {
  const std::vector<std::vector<Tensor>> lists{
      {ramp({9}, Device::cuda(0), 0, f64), ramp({4}, Device::cuda(0), 0, i32)},
      {ramp({9}, devices().back(), 1, f16), ramp({4}, devices().back(), 1, i64)}};
  expect_throws<DTypeError>([&] { (void)comm::reduce_add_coalesced(lists, Device::cuda(0)); },
                            "input tensor at index 1 has dtype f16, but expected f64");
  const auto sums = comm::reduce_add_coalesced(lists, Device::cuda(0), {.allow_cast = true});
  EXPECT_EQ(sums[0].dtype(), f64);
  EXPECT_EQ(sums[1].dtype(), i32);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sums[i].to_vector<double>(), lists[0][i].mul(2).add(1).to_vector<double>());
  }
}

TEST_F(CommCoalescedTest, BadListsAreClearErrors) {
  const Tensor a = ramp({4}, Device::cuda(0), 0);
  expect_throws<InvalidArgument>([&] { (void)comm::reduce_add_coalesced({}); },
                                 "expected at least one list, but got none");
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::reduce_add_coalesced({{a}, {Tensor()}});
      },
      "input tensor at index 1");
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::reduce_add_coalesced({{a}, {a.cpu()}});
      },
      "tensor at index 1 has device cpu");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::reduce_add_coalesced({{a}, {a.view({2, 2})}});
      },
      "has invalid shape [2, 2], but expected [4]");
  expect_throws<InvalidArgument>(
      [&] { (void)comm::broadcast_coalesced({a}, devices(), std::size_t{0}); },
      "expected buffer_bytes > 0, but got 0");
  EXPECT_TRUE(comm::reduce_add_coalesced({{}, {}}).empty());
  EXPECT_EQ(comm::broadcast_coalesced({}, devices()).size(), devices().size());
  if (device_count() > 1) {
    expect_throws<DeviceMismatchError>(
        [&] {
          (void)comm::reduce_add_coalesced({{a, a.to(Device::cuda(1))}});
        },
        "expected one device per list, but list 0 has tensors on cuda:0 and cuda:1");
  }
}

}  // namespace
}  // namespace gantry
