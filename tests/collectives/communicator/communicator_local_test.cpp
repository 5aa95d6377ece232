// Groups inside one process: every operation, algorithm and dtype against the oracle.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/sim/schedule.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using testing::rank_threads;

using CommunicatorLocalTest = testing::LocalGroupTest;

class EveryAlgorithm : public CommunicatorLocalTest,
                       public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryAlgorithm, GivesTheDefinedBitsForEveryOperation) {
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  for (const int ranks : {2, 3, std::min(device_count(), 8)}) {
    if (ranks > device_count()) continue;
    on_ranks(ranks, [](CollectiveSuite& suite, Communicator&) {
      for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
        suite.all(dtype, 33);
      }
      for (const std::int64_t count : {0, 1, 3, 7, 8, 255, 4097}) {
        suite.all(f32, count);
        suite.all(bf16, count, 1);
      }
      suite.all(u8, 1001, 3);
    });
  }
}

TEST_P(EveryAlgorithm, GivesTheDefinedBitsForManySteps) {
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  const int ranks = std::min(device_count(), 4);
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(ranks, [](CollectiveSuite& suite, Communicator&) {
    // More than the slots of staging hold, unless that takes minutes; a multiple of nothing.
    const std::int64_t large = (testing::kIsSanitized ? 512 << 10 : 4 << 20) + 77;
    suite.all_reduce(ReduceOp::sum, f32, large);
    suite.reductions_apart(ReduceOp::sum, f32, large, 1);
    suite.into_slices(ReduceOp::sum, f32, large / 8, 1, 1);
    suite.broadcast(f32, large, 1);
    suite.reduce(ReduceOp::sum, bf16, large / 4, 1, 1);
    suite.broadcast(u8, large, 1, 5);
    suite.reduce_scatter(ReduceOp::sum, f64, large / 8);
    suite.all_gather(i64, large / 4);
    suite.all_to_all(i64, large / 8, 1);
    suite.uneven_all_to_all(f32, large / 16);
    suite.ring(f32, large / 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EveryAlgorithm,
                         ::testing::Values("auto", "ll", "ll128", "ll128_two_shot", "one_shot",
                                           "two_shot"),
                         [](const auto& info) { return std::string(info.param); });

// Gives way, or not, before a signal: another order of all kernels for every seed.
// No result depends on the time that a sleep takes.
std::atomic<std::uint64_t> schedule_seed{0};
void give_way_at_random() {
  thread_local std::uint64_t draws = 0;
  const auto thread = std::hash<std::thread::id>{}(std::this_thread::get_id());
  const std::uint64_t draw = testing::scrambled(schedule_seed.load() + thread + ++draws);
  if (draw % 16 == 0) std::this_thread::yield();
  if (draw % 256 == 1) std::this_thread::sleep_for(std::chrono::microseconds(draw >> 8 & 127));
}

TEST_F(CommunicatorLocalTest, NoOrderOfSignalsChangesAnything) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(3);
  protocol::schedule::set_hook(give_way_at_random);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    schedule_seed = seed << 32;
    const char* algorithms[] = {"ll", "ll128", "ll128_two_shot", "one_shot", "two_shot"};
    setenv("GANTRY_COLL_ALGO", algorithms[seed % std::size(algorithms)], 1);
    on_ranks(3, [](CollectiveSuite& suite, Communicator&) {
      suite.all(f32, 1001);
      suite.all(i64, 17);
      suite.all(bf16, 20'000, 1);
    });
  }
  protocol::schedule::set_hook(nullptr);
}

TEST_F(CommunicatorLocalTest, OneThreadDrivesAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 4);
  std::vector<Communicator> group = Communicator::local(devices(ranks));
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    tensors.push_back(full({100'000}, rank + 1, {.device = Device::cuda(rank)}));
  }
  for (int round = 0; round < 20; ++round) {
    for (int rank = 0; rank < ranks; ++rank) {
      group[static_cast<std::size_t>(rank)].all_reduce(tensors[static_cast<std::size_t>(rank)],
                                                       ReduceOp::max);
    }
  }
  for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.amin().item<int>(), ranks);
}

TEST_F(CommunicatorLocalTest, OneRankWorksAlone) {
  std::vector<Communicator> group = Communicator::local(devices(1));
  CollectiveSuite suite(group.front());
  suite.all(f32, 100);
  EXPECT_EQ(group.front().transport(), "none");
}

TEST_F(CommunicatorLocalTest, OperationsOnUnorderedStreams) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) {
      const StreamGuard guard(Stream::from_pool(group.device()));
      tensors.push_back(full({1 + i * 997}, i + group.rank(), {.device = group.device()}));
      works.push_back(group.all_reduce(tensors.back()));
    }
    for (int i = 0; i < 40; ++i) {
      works[static_cast<std::size_t>(i)].synchronize();
      const Tensor& tensor = tensors[static_cast<std::size_t>(i)];
      if (tensor.amin().item<int>() != 2 * i + 1 || tensor.amax().item<int>() != 2 * i + 1) {
        throw std::runtime_error("an operation overtook another");
      }
    }
  });
}

TEST_P(EveryAlgorithm, ExchangesATensorWithItself) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite&, Communicator& group) {
    const std::int64_t n = group.size();
    for (const std::int64_t rows : {std::int64_t{5}, std::int64_t{4096}, std::int64_t{300'000}}) {
      for (const bool uneven : {false, true}) {
        Tensor tensor = arange(n * rows, {.dtype = i32, .device = group.device()});
        tensor.add_(group.rank() * 10'000'000);
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), rows);
        uneven ? group.all_to_all(tensor, tensor, counts, counts)
               : group.all_to_all(tensor, tensor);
        for (std::int64_t peer = 0; peer < n; ++peer) {
          const Tensor expected = arange(rows, {.dtype = i32, .device = group.device()})
                                      .add(peer * 10'000'000 + group.rank() * rows);
          if (!tensor.narrow(0, peer * rows, rows).equal(expected)) {
            throw std::runtime_error("the block of rank " + std::to_string(peer) + " is wrong");
          }
        }
      }
    }
  });
}

TEST_F(CommunicatorLocalTest, SplitMakesGroupsByColorAndKey) {
  GANTRY_REQUIRE_DEVICES(4);
  on_ranks(4, [](CollectiveSuite&, Communicator& group) {
    Communicator half = group.split(group.rank() % 2, -group.rank());
    if (half.size() != 2 || half.rank() != (group.rank() < 2 ? 1 : 0)) {
      throw std::runtime_error("wrong group");
    }
    CollectiveSuite suite(half);
    suite.all(f32, 1000);
    const Communicator none = group.split(group.rank() == 0 ? -1 : 0);
    if (none.defined() == (group.rank() == 0)) throw std::runtime_error("wrong membership");
    if (group.rank() == 0) {
      expect_throws<InvalidArgument>([&] { (void)none.rank(); }, "rank: expected a defined");
    }
  });
}

TEST_F(CommunicatorLocalTest, ShrinkWorksWithoutTheLostRanks) {
  GANTRY_REQUIRE_DEVICES(3);
  std::vector<Communicator> group = Communicator::local(devices(3));
  group[2].abort();
  rank_threads(2, [&](int rank) {
    Communicator& mine = group[static_cast<std::size_t>(rank)];
    const DeviceGuard guard(mine.device());
    EXPECT_THROW(mine.barrier().synchronize(), PeerLostError);
    Communicator rest = mine.shrink({2});
    CollectiveSuite suite(rest);
    suite.all(f32, 1000);
  });
}

// Both ranks leave a group that they have used. Rank 1 does so while rank 0's kernel waits for what
// rank 1 calls next in the group that they keep; rank 0 has left before, or leaves afterwards.
class LeavingGroupTest : public CommunicatorLocalTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    CommunicatorLocalTest::SetUp();
    setenv("GANTRY_COLL_TIMEOUT", "30", 1);
  }
  void TearDown() override {
    unsetenv("GANTRY_COLL_TIMEOUT");
    CommunicatorLocalTest::TearDown();
  }
};

TEST_P(LeavingGroupTest, WaitsForNoKernelOfAnotherRank) {
  GANTRY_REQUIRE_DEVICES(2);
  const bool is_last = GetParam();
  std::atomic<bool> is_enqueued{false};
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& mine) {
    for (int round = 0; round < 3; ++round) {
      Communicator part = mine.split(0);
      Tensor sum = ones({1000}, {.device = mine.device()});
      part.all_reduce(sum).synchronize();
      std::optional<Work> work;
      if (mine.rank() == 0) {
        if (is_last) part = {};
        work = mine.all_reduce(sum);
        is_enqueued = true;
      } else {
        while (!is_enqueued) std::this_thread::yield();
        part = {};
        work = mine.all_reduce(sum);
      }
      work->synchronize();
      is_enqueued = false;
      EXPECT_EQ(sum.amin().item<float>(), 4);
      mine.host_barrier();
    }
    suite.all(f32, 100);
  });
}

INSTANTIATE_TEST_SUITE_P(Leaving, LeavingGroupTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "last" : "first"; });

// Each has a mutex of its own, so threads may use them at once.
TEST_F(CommunicatorLocalTest, GroupsMadeOfAShrunkGroupDoNotDisturbEachOther) {
  GANTRY_REQUIRE_DEVICES(3);
  on_ranks(3, [&](CollectiveSuite&, Communicator& mine) {
    Communicator shrunk = mine.shrink({});
    Communicator parts[] = {shrunk.split(0, 0), shrunk.split(0, -mine.rank()),
                            shrunk.split(mine.rank(), 0), shrunk.shrink({})};
    const auto exchange = [](Communicator& group, char name) {
      for (int round = 0; round < 200; ++round) {
        const auto text_of = [&](int rank) { return fmt::format("{} {} {}", name, rank, round); };
        const std::vector<std::string> all = group.all_gather_bytes(text_of(group.rank()));
        for (int rank = 0; rank < group.size(); ++rank) {
          ASSERT_EQ(all[static_cast<std::size_t>(rank)], text_of(rank));
        }
      }
    };
    std::vector<std::thread> users;
    char name = 'a';
    for (Communicator& part : parts) {
      users.emplace_back([&exchange, &part, name] { exchange(part, name); });
      ++name;
    }
    exchange(shrunk, name);
    for (std::thread& user : users) user.join();
  });
}

TEST_F(CommunicatorLocalTest, BadInputIsRefusedBeforeAnythingHappens) {
  GANTRY_REQUIRE_DEVICES(2);
  expect_throws<InvalidArgument>([] { (void)Communicator::local({}); }, "at least one device");
  expect_throws<InvalidArgument>(
      [] {
        (void)Communicator::local({Device::cuda(0), Device::cuda(0)});
      },
      "every device once");
  expect_throws<InvalidArgument>([] { (void)Communicator::local({Device::cpu()}); },
                                 "expected devices");
  std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor tensor = ones({4}, {.device = Device::cuda(0)});
  Tensor foreign = ones({4}, {.device = Device::cuda(1)});
  expect_throws<InvalidArgument>([&] { (void)group[0].reduce(tensor, 2); },
                                 "expected a root from 0 to 1");
  expect_throws<InvalidArgument>([&] { (void)group[0].send(tensor, 0); }, "this rank itself");
  expect_throws<DeviceMismatchError>([&] { (void)group[0].all_reduce(foreign); }, "cuda:0");
  expect_throws<ShapeError>([&] { (void)group[0].all_to_all(tensor, tensor.narrow(0, 0, 3)); },
                            "rows");
  Tensor scalar = ones({}, {.device = Device::cuda(0)});
  expect_throws<ShapeError>([&] { (void)group[0].all_gather(tensor, scalar); },
                            "all_gather: expected 'output' of shape [2], but got [4]");
  expect_throws<ShapeError>([&] { (void)group[0].gather(tensor, scalar); },
                            "gather: expected 'output' of shape [2], but got [4]");
  expect_throws<ShapeError>([&] { (void)group[0].reduce_scatter(scalar, tensor); },
                            "reduce_scatter: expected 'input' of shape [2], but got [4]");
  std::vector<Tensor> list{tensor, foreign.to(Device::cuda(0)), tensor.narrow(0, 1, 3)};
  expect_throws<InvalidArgument>(
      [&] { (void)group[0].all_reduce_coalesced(list); },
      "all_reduce_coalesced: expected tensors that share no memory, but tensors 0 and 2, both "
      "on cuda:0, do");
  expect_throws<ShapeError>([&] { (void)group[0].all_gather(tensor, tensor); },
                            "all_gather: expected 'output' of shape [8], but got [4]");
  Tensor whole = ones({4}, {.dtype = i32, .device = Device::cuda(0)});
  expect_throws<DTypeError>([&] { (void)group[0].all_reduce(whole, ReduceOp::avg); },
                            "a floating dtype");
  expect_throws<DTypeError>([&] { (void)group[0].all_reduce(whole, ReduceOp::sum, {.scale = 2}); },
                            "scale 1");
}

TEST_F(CommunicatorLocalTest, RowCountsWhoseSumNoNumberHoldsAreRefused) {
  GANTRY_REQUIRE_DEVICES(3);
  std::vector<Communicator> group = Communicator::local(devices(3));
  Tensor output = ones({4}, {.device = Device::cuda(0)});
  const Tensor input = ones({4}, {.device = Device::cuda(0)});
  const std::vector<std::int64_t> rows{INT64_MAX, INT64_MAX, 6};
  expect_throws<ShapeError>([&] { (void)group[0].all_to_all(output, input, rows, rows); },
                            "expected 'output' of 18446744073709551620 rows");
}

TEST_F(CommunicatorLocalTest, WholesMayBeStackedParts) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& mine) {
    const Device device = mine.device();
    Tensor stacked = empty({2, 1, 3}, {.device = device});
    Tensor numbers = empty({2}, {.device = device});
    Tensor gathered = empty({2, 3}, {.device = device});
    const Tensor row = full({1, 3}, mine.rank() + 1, {.dtype = f32, .device = device});
    mine.all_gather(stacked, row);
    mine.all_gather(numbers, full({}, mine.rank() + 5, {.dtype = f32, .device = device}));
    mine.gather(gathered, row[0], 1);
    EXPECT_EQ(stacked.to_vector<int>(), (std::vector<int>{1, 1, 1, 2, 2, 2}));
    EXPECT_EQ(numbers.to_vector<int>(), (std::vector<int>{5, 6}));
    if (mine.rank() == 1) {
      EXPECT_EQ(gathered.to_vector<int>(), (std::vector<int>{1, 1, 1, 2, 2, 2}));
    }
    Tensor share = empty({3}, {.device = device});
    mine.reduce_scatter(share, stacked.select(1, 0));
    EXPECT_EQ(share.to_vector<int>(), std::vector<int>(3, 2 * (mine.rank() + 1)));
    mine.scatter(share, gathered, 1);
    EXPECT_EQ(share.to_vector<int>(), std::vector<int>(3, mine.rank() + 1));
  });
  Communicator alone = Communicator::local(devices(1)).front();
  Tensor single = zeros({1, 3}, {.device = alone.device()});
  alone.all_gather(single, ones({3}, {.device = alone.device()})).synchronize();
  EXPECT_EQ(single.to_vector<int>(), (std::vector<int>{1, 1, 1}));
}

TEST_F(CommunicatorLocalTest, ViewsThatWereJustMadeAreWritten) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& mine) {
    const Tensor rows = full({3, 2}, mine.rank() + 1, {.dtype = i32, .device = mine.device()});
    mine.all_reduce(rows[0]);
    mine.broadcast(rows.t().narrow(1, 1, 1), 1);
    EXPECT_EQ(rows.to_vector<int>(),
              (std::vector<int>{3, 3, 2, 2, mine.rank() + 1, mine.rank() + 1}));
    // Columns lie in one another's range, and share nothing.
    std::vector<Tensor> columns{rows.select(1, 0), rows.select(1, 1)};
    mine.all_reduce_coalesced(columns);
    EXPECT_EQ(rows.to_vector<int>(), (std::vector<int>{6, 6, 4, 4, 3, 3}));
  });
}

TEST_F(CommunicatorLocalTest, RowCountsMayBeListed) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& mine) {
    const TensorOptions options{.dtype = i32, .device = mine.device()};
    const int first = 10 * mine.rank();
    const Tensor rows = arange(first, first + 3, 1, options);
    // Rank 0 keeps one row and sends two, rank 1 keeps its three.
    if (mine.rank() == 0) {
      const Tensor kept = empty({1}, options);
      mine.all_to_all(kept, rows, {1, 0}, {1, 2});
      EXPECT_EQ(kept.to_vector<int>(), (std::vector<int>{0}));
    } else {
      const Tensor all = empty({5}, options);
      mine.all_to_all(all, rows, {2, 3}, {0, 3});
      EXPECT_EQ(all.to_vector<int>(), (std::vector<int>{1, 2, 10, 11, 12}));
    }
  });
}

TEST_F(CommunicatorLocalTest, OptionsMayFollowTheTensor) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& mine) {
    std::vector<Tensor> all;
    for (int i = 0; i < 7; ++i) all.push_back(ones({2}, {.device = mine.device()}));
    const Tensor input = ones({4}, {.device = mine.device()});
    mine.all_reduce(all[0], {.scale = 2});
    mine.all_reduce(all[1], {});
    mine.all_reduce(all[2], ReduceOp::max);
    mine.reduce(all[3], 0, {.scale = 3});
    mine.reduce(all[4], 0, {});
    mine.all_reduce_coalesced({&all[5], 1}, {.scale = 4});
    mine.reduce_scatter(all[6], input, {.scale = 5});
    const int expected[] = {4, 2, 1, 6, 2, 8, 10};
    for (std::size_t i = 0; i < 7; ++i) {
      const bool is_root = mine.rank() == 0 || (i != 3 && i != 4);
      EXPECT_EQ(all[i].to_vector<int>(), std::vector<int>(2, is_root ? expected[i] : 1)) << i;
    }
  });
}

TEST_F(CommunicatorLocalTest, EveryMemberOfAnUndefinedOneThrowsAndNamesItself) {
  GANTRY_REQUIRE_DEVICES(1);
  Communicator none;
  Tensor tensor = ones({4}, {.device = Device::cuda(0)});
  const std::vector<std::int64_t> rows{4};
  const std::pair<const char*, std::function<void()>> members[] = {
      {"rank", [&] { (void)none.rank(); }},
      {"size", [&] { (void)none.size(); }},
      {"local_rank", [&] { (void)none.local_rank(); }},
      {"local_size", [&] { (void)none.local_size(); }},
      {"device", [&] { (void)none.device(); }},
      {"launched_by", [&] { (void)none.launched_by(); }},
      {"transport", [&] { (void)none.transport(); }},
      {"device_map", [&] { (void)none.device_map(); }},
      {"all_reduce", [&] { none.all_reduce(tensor); }},
      {"all_reduce_coalesced",
       [&] {
         none.all_reduce_coalesced({&tensor, 1});
       }},
      {"all_reduce_coalesced", [&] { none.all_reduce_coalesced({}); }},
      {"reduce", [&] { none.reduce(tensor); }},
      {"broadcast", [&] { none.broadcast(tensor); }},
      {"all_gather", [&] { none.all_gather(tensor, tensor); }},
      {"reduce_scatter", [&] { none.reduce_scatter(tensor, tensor); }},
      {"gather", [&] { none.gather(tensor, tensor); }},
      {"scatter", [&] { none.scatter(tensor, tensor); }},
      {"all_to_all", [&] { none.all_to_all(tensor, tensor); }},
      {"all_to_all", [&] { none.all_to_all(tensor, tensor, rows, rows); }},
      {"send", [&] { none.send(tensor, 1); }},
      {"recv", [&] { none.recv(tensor, 1); }},
      {"barrier", [&] { none.barrier(); }},
      {"register_memory", [&] { none.register_memory(tensor); }},
      {"deregister_memory", [&] { none.deregister_memory(tensor); }},
      {"host_barrier", [&] { none.host_barrier(); }},
      {"all_gather_bytes", [&] { (void)none.all_gather_bytes(""); }},
      {"split", [&] { (void)none.split(0); }},
      {"shrink", [&] { (void)none.shrink({0}); }},
      {"grow", [&] { (void)none.grow(2); }},
  };
  for (const auto& [name, call] : members) {
    expect_throws<InvalidArgument>(
        call, std::string(name) +
                  ": expected a defined communicator, but got an undefined one (split() with a "
                  "negative color?)");
  }
  EXPECT_FALSE(none.defined());
  none.abort();
}

// A process whose table of algorithms is refused in the middle of making a group. It ends with 0 if
// it can go on.
[[noreturn]] void make_a_group_with_a_bad_rule() {
  const Device device = Device::cuda(0);
  synchronize(device);  // the variables are checked here
  setenv("GANTRY_COLL_ALGO", "fastest", 1);
  int refused = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      static_cast<void>(Communicator::local({device}));
    } catch (const InvalidArgument&) {
      ++refused;
    }
    synchronize(device);
  }
  std::exit(refused - 2);
}

TEST(CommunicatorDeathTest, AGroupThatIsRefusedLeavesNothingBehind) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  GANTRY_REQUIRE_DEVICES(1);
  EXPECT_EXIT(make_a_group_with_a_bad_rule(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CommunicatorLocalTest, WorkThatNamesNoOperationIsDone) {
  Work work;
  EXPECT_FALSE(work.defined());
  EXPECT_TRUE(work.query());
  work.wait();
  work.synchronize();
  std::vector<Communicator> group = Communicator::local(devices(1));
  Tensor tensor = ones({4}, {.device = Device::cuda(0)});
  work = group.front().all_reduce(tensor);
  EXPECT_TRUE(work.defined());
  work.synchronize();
}

}  // namespace
}  // namespace gantry
