// Hierarchical collectives, with ranks as threads and machines by name.
#include "collectives/hierarchical/transport.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/control/segment.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/losing_driver.hpp"
#include "tests/collectives/reduction_checks.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::Bytes;
using testing::check_reductions;
using testing::describe;
using testing::HostRank;
using testing::inputs_of;
using testing::reduce_scalars;
using testing::slice;

// The machine of each rank.
using Machines = std::vector<std::string>;
const Machines kTwoByTwo{"a", "a", "b", "b"};
const Machines kTwoByThree{"a", "a", "a", "b", "b", "b"};
const Machines kDealt{"a", "b", "c", "a", "b", "c"};
const Machines kMixed{"a", "b", "b", "a"};

// Elements of 4 bytes that do not fit into the first message, and are no multiple of anything.
constexpr std::size_t kCount = 8'209;

void layered_ranks(const Machines& machines,
                   const std::function<void(HostRank&, HierarchicalTransport&)>& fn) {
  const NodeMap map(machines);
  testing::host_ranks(map.ranks(), [&](HostRank& self) {
    auto node = self.transport->among(map.members(map.node_of(self.rank)));
    HierarchicalTransport layered({.everyone = {self.rank, self.size, self.device},
                                   .map = map,
                                   .all = std::move(self.transport),
                                   .node = std::move(node)});
    fn(self, layered);
  });
}

TEST(HierarchicalTransportTest, ReducesEveryDTypeByEveryOpToTheBitsOfTheDefinition) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kTwoByTwo, [](HostRank& self, Transport& layered) {
    for (const DType dtype : testing::kAllDTypes) {
      const std::size_t count = kCount * 4 / element_size(dtype);
      for (const ReduceOp op : testing::kAllOps) {
        if (testing::is_defined(op, dtype)) check_reductions(self, layered, dtype, op, count);
      }
    }
  });
}

TEST(HierarchicalTransportTest, BitsDoNotDependOnWhereRanksRun) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const Machines& machines : {kTwoByThree, kDealt, kMixed}) {
    layered_ranks(machines, [](HostRank& self, Transport& layered) {
      for (const std::size_t count : {std::size_t{3}, kCount * 2, std::size_t{40'000}}) {
        check_reductions(self, layered, DType::bf16, ReduceOp::sum, count);
        check_reductions(self, layered, DType::f32, ReduceOp::avg, count);
        check_reductions(self, layered, DType::i64, ReduceOp::sum, count);
      }
    });
  }
}

TEST(HierarchicalTransportTest, ReducesArraysOfSeveralChunks) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kMixed, [](HostRank& self, Transport& layered) {
    const std::size_t count = (std::size_t{17} << 20) / 8 + 5;
    const auto inputs = inputs_of(self.size, DType::f64, count);
    for (const bool reproducible : {true, false}) {
      Descriptor what = describe(CollectiveKind::all_reduce, count, DType::f64, -1,
                                 reproducible ? ReduceOp::sum : ReduceOp::max);
      what.reproducible = reproducible ? 1 : 0;
      EXPECT_EQ(self.run_on(layered, what, inputs[static_cast<std::size_t>(self.rank)], count * 8),
                reduce_scalars(what.op, DType::f64, inputs, 0, count));
    }
  });
}

TEST(HierarchicalTransportTest, ScalesInRankOrder) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kTwoByTwo, [](HostRank& self, Transport& layered) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      const std::size_t count = kCount * 4 / element_size(dtype);
      check_reductions(self, layered, dtype, ReduceOp::sum, count, 0.3);
      check_reductions(self, layered, dtype, ReduceOp::avg, count, 0.3);
    }
  });
}

TEST(HierarchicalTransportTest, SumsInFreeOrderAreSums) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kTwoByThree, [](HostRank& self, Transport& layered) {
    // Numbers whose sums are exact in any order.
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(static_cast<int>(i) * (self.rank + 1));
    }
    Bytes in(kCount * 4);
    std::memcpy(in.data(), values.data(), in.size());
    Descriptor what = describe(CollectiveKind::all_reduce, kCount, DType::f32);
    what.reproducible = 0;
    what.scale = 0.5;
    const Bytes out = self.run_on(layered, what, in, in.size());
    std::memcpy(values.data(), out.data(), out.size());
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], static_cast<float>(i) * 21 * 0.5f) << i;
    }
  });
}

TEST(HierarchicalTransportTest, MovesArrays) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const Machines& machines : {kTwoByTwo, kTwoByThree, kDealt, kMixed}) {
    const bool is_dealt = machines == kDealt;
    layered_ranks(machines, [&](HostRank& self, Transport& layered) {
      const auto ranks = static_cast<std::size_t>(self.size);
      const auto own = static_cast<std::size_t>(self.rank);
      const std::size_t root = 1;
      const bool is_root = own == root;
      // The last one takes several chunks of scratch memory among six ranks.
      std::vector<std::size_t> counts{5, kCount};
      if (self.size == 6 && is_dealt) counts.push_back(710'001);
      for (const std::size_t count : counts) {
        SCOPED_TRACE(count);
        const std::size_t bytes = count * 4;
        const auto inputs = inputs_of(self.size, DType::i32, count * ranks);
        Bytes gathered, transposed;
        for (std::size_t r = 0; r < ranks; ++r) {
          const Bytes head = slice(inputs[r], 0, bytes);
          gathered.insert(gathered.end(), head.begin(), head.end());
          const Bytes block = slice(inputs[r], own * bytes, bytes);
          transposed.insert(transposed.end(), block.begin(), block.end());
        }
        const auto run = [&](CollectiveKind kind, int to, const Bytes& in, std::size_t out_bytes) {
          return self.run_on(layered, describe(kind, count, DType::i32, to), in, out_bytes);
        };
        const Bytes head = slice(inputs[own], 0, bytes);
        EXPECT_EQ(run(CollectiveKind::broadcast, 1, head, bytes), slice(inputs[root], 0, bytes));
        EXPECT_EQ(run(CollectiveKind::all_gather, -1, head, bytes * ranks), gathered);
        EXPECT_EQ(run(CollectiveKind::gather, 1, head, is_root ? bytes * ranks : 8),
                  is_root ? gathered : Bytes(8, std::byte{0x5a}));
        EXPECT_EQ(run(CollectiveKind::scatter, 1, inputs[own], bytes),
                  slice(inputs[root], own * bytes, bytes));
        EXPECT_EQ(run(CollectiveKind::all_to_all, -1, inputs[own], bytes * ranks), transposed);
      }
    });
  }
}

// Counts what arrives from ranks of other machines.
class CountingLinks final : public HostLinks {
 public:
  CountingLinks(std::unique_ptr<HostLinks> wrapped, const NodeMap& map, int rank)
      : wrapped_(std::move(wrapped)), map_(map), rank_(rank) {}

  std::string_view name() const override { return wrapped_->name(); }
  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    wrapped_->exchange(sends, receives);
    for (const Incoming& message : receives) {
      const bool is_far = map_.node_of(message.rank) != map_.node_of(rank_);
      // Calls are not numbered.
      if (is_far && message.bytes > sizeof(HostFrame)) bytes += static_cast<double>(message.bytes);
    }
  }
  void drive(ExchangeHandler& handler) override { wrapped_->drive(handler); }
  void abort() noexcept override { wrapped_->abort(); }
  void leave() noexcept override { wrapped_->leave(); }

  double bytes = 0;

 private:
  std::unique_ptr<HostLinks> wrapped_;
  const NodeMap& map_;
  int rank_;
};

TEST(HierarchicalTransportTest, BytesOverTheNetworkAreThoseOfTheModel) {
  GANTRY_REQUIRE_DEVICES(1);
  const NodeMap map(kTwoByThree);
  testing::host_ranks(map.ranks(), [&](HostRank& self) {
    auto links = std::make_shared<CountingLinks>(
        make_tcp_links(*self.bootstrap, {self.rank, self.size}), map, self.rank);
    const Membership everyone{self.rank, self.size, self.device};
    auto all = std::make_unique<HostTransport>(everyone, links);
    auto node = all->among(map.members(map.node_of(self.rank)));
    HierarchicalTransport layered(
        {.everyone = everyone, .map = map, .all = std::move(all), .node = std::move(node)});
    // Note [Hierarchical collectives], with K = 2 nodes of L = 3 ranks. S is what one rank gives or
    // gets.
    const double s = 6 * 64 * 1000 * 4;
    const double across = s / 2;
    struct Case {
      CollectiveKind kind;
      bool reproducible;
      double parts;  // of which `count` elements are one
      double bytes;
    };
    const Case cases[] = {
        {CollectiveKind::all_reduce, true, 1, across + across / 3},
        {CollectiveKind::all_reduce, false, 1, 2 * across / 3},
        {CollectiveKind::reduce_scatter, true, 6, across},
        {CollectiveKind::reduce_scatter, false, 6, across / 3},
        {CollectiveKind::all_gather, true, 6, across / 3},
        {CollectiveKind::all_to_all, true, 6, across},
    };
    for (const Case& expected : cases) {
      const auto bytes = static_cast<std::size_t>(s);
      Descriptor what =
          describe(expected.kind, static_cast<std::size_t>(s / expected.parts / 4), DType::f32);
      what.reproducible = expected.reproducible ? 1 : 0;
      links->bytes = 0;
      self.run_on(layered, what, Bytes(bytes), bytes);
      EXPECT_NEAR(links->bytes, expected.bytes, 0.01 * s) << what.str();
    }
  });
}

// Notes copies that begin in a watched array and end behind it.
class ReadWatch final : public testing::FaultDriver {
 public:
  void watch(int rank, const Tensor& tensor, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const std::byte*>(tensor.data());
    arrays_[rank] = {first, first + bytes};
  }
  void forget(int rank) {
    const std::lock_guard lock(mutex_);
    arrays_.erase(rank);
  }
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    {
      const std::lock_guard lock(mutex_);
      const auto* const from = static_cast<const std::byte*>(src);
      for (const auto& [rank, array] : arrays_) {
        if (from < array.first || from >= array.second) continue;
        ++reads_;
        if (from + bytes > array.second) ++reads_behind_;
      }
    }
    testing::FaultDriver::copy(dst, src, bytes, stream);
  }
  int reads() const { return reads_; }
  int reads_behind() const { return reads_behind_; }

 private:
  using Array = std::pair<const std::byte*, const std::byte*>;

  std::mutex mutex_;
  std::map<int, Array> arrays_;
  int reads_ = 0;
  int reads_behind_ = 0;
};

TEST(HierarchicalTransportTest, NothingBehindAnArrayIsReadOrWritten) {
  GANTRY_REQUIRE_DEVICES(1);
  ReadWatch watch;
  layered_ranks(kTwoByThree, [&](HostRank& self, Transport& layered) {
    constexpr std::size_t kBehind = 4096;
    for (const auto kind :
         {CollectiveKind::broadcast, CollectiveKind::all_reduce, CollectiveKind::reduce}) {
      for (const std::size_t count : {std::size_t{1}, kCount}) {
        for (const int root : {0, 4}) {
          const std::size_t bytes = count * 4;
          const Tensor input = self.on_device(Bytes(bytes + kBehind, std::byte{1}));
          const Tensor output = self.on_device(Bytes(bytes + kBehind, std::byte{0x5a}));
          const bool is_rooted = kind != CollectiveKind::all_reduce;
          const bool reads = kind != CollectiveKind::broadcast || self.rank == root;
          if (reads) watch.watch(self.rank, input, bytes);
          Descriptor what = describe(kind, count, DType::i32, is_rooted ? root : -1);
          what.call = ++self.calls;
          layered.run({{what, input.data(), output.data()}, self.size}, self.stream);
          self.stream.synchronize();
          watch.forget(self.rank);
          const Bytes out = self.on_host(output);
          EXPECT_EQ(slice(out, bytes, kBehind), Bytes(kBehind, std::byte{0x5a})) << what.str();
        }
      }
    }
  });
  EXPECT_GT(watch.reads(), 0);
  EXPECT_EQ(watch.reads_behind(), 0);
}

TEST(HierarchicalTransportTest, RanksOfOneMachineUseItsPeerMemory) {
  GANTRY_REQUIRE_DEVICES(4);
  for (const Machines& machines : {kTwoByTwo, kMixed}) {
    testing::host_ranks(4, [&](HostRank& self) {
      self.transport.reset();
      const auto layered = make_hierarchical_transport({self.rank, self.size, self.device},
                                                       *self.bootstrap, machines, "Simulated GPU",
                                                       std::chrono::seconds(60), "layered-test");
      ASSERT_EQ(layered->name(), "hierarchical");
      for (const std::size_t count : {std::size_t{3}, kCount * 2, std::size_t{70'000}}) {
        check_reductions(self, *layered, DType::bf16, ReduceOp::sum, count);
        check_reductions(self, *layered, DType::f32, ReduceOp::avg, count);
        check_reductions(self, *layered, DType::i64, ReduceOp::max, count);
      }
    });
  }
}

// Ranks of two machines that get a host transport, and its bits.
void expect_host_memory() {
  testing::host_ranks(4, [](HostRank& self) {
    self.transport.reset();
    const auto flat =
        make_hierarchical_transport({self.rank, self.size, self.device}, *self.bootstrap, kTwoByTwo,
                                    "Simulated GPU", std::chrono::seconds(60), "layered-test");
    EXPECT_EQ(flat->name(), "host");
    check_reductions(self, *flat, DType::f32, ReduceOp::sum, kCount * 2);
    check_reductions(self, *flat, DType::bf16, ReduceOp::sum, std::size_t{70'000});
  });
}

TEST(HierarchicalTransportTest, WithPeerMemorySwitchedOffAllGoesThroughHostMemory) {
  GANTRY_REQUIRE_DEVICES(1);
  setenv("GANTRY_P2P", "off", 1);
  expect_host_memory();
  unsetenv("GANTRY_P2P");
}

TEST(HierarchicalTransportTest, AMachineWhosePeerMemoryFailsSendsAllThroughHostMemory) {
  GANTRY_REQUIRE_SIM();  // Results of probes on real GPUs are kept.
  GANTRY_REQUIRE_DEVICES(4);
  const testing::LosingDriver losing(3);
  expect_host_memory();
}

TEST(HierarchicalTransportTest, UnevenMachinesGoThroughHostMemory) {
  GANTRY_REQUIRE_DEVICES(1);
  const Machines machines{"a", "a", "b"};
  testing::host_ranks(3, [&](HostRank& self) {
    self.transport.reset();
    const auto flat =
        make_hierarchical_transport({self.rank, self.size, self.device}, *self.bootstrap, machines,
                                    "Simulated GPU", std::chrono::seconds(60), "layered-test");
    EXPECT_EQ(flat->name(), "host");
    check_reductions(self, *flat, DType::f32, ReduceOp::sum, kCount);
  });
}

TEST(HierarchicalTransportTest, MismatchesAreNamedOnEveryRankAndTheGroupStaysIntact) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kTwoByTwo, [](HostRank& self, Transport& layered) {
    const std::size_t count = self.rank == 3 ? kCount * 2 : kCount;
    const Bytes in(kCount * 8);
    testing::expect_throws<CollectiveMismatch>(
        [&] {
          self.run_on(layered, describe(CollectiveKind::all_reduce, count, DType::f32), in,
                      kCount * 8);
        },
        "rank 0 called all_reduce sum f32[8209] and rank 3 called all_reduce sum f32[16418]");
    check_reductions(self, layered, DType::f32, ReduceOp::sum, kCount);
  });
}

// A rank that learns of a rejected message in a hierarchical operation still completes it.
TEST(HierarchicalTransportTest, AfterARejectedMessageEveryRankEntersTheNextOperation) {
  GANTRY_REQUIRE_DEVICES(1);
  layered_ranks(kTwoByTwo, [](HostRank& self, Transport& layered) {
    const std::string text = "rank 0 called send f32[5] to 2 and rank 2 called recv f64[5] from 0";
    if (self.rank == 0) {
      self.run_on(layered, describe(CollectiveKind::send, 5, DType::f32, 2), Bytes(20), 0);
    } else if (self.rank == 2) {
      testing::expect_throws<CollectiveMismatch>(
          [&] { self.run_on(layered, describe(CollectiveKind::recv, 5, DType::f64, 0), {}, 40); },
          text);
    }
    const Descriptor gather = describe(CollectiveKind::all_gather, kCount, DType::f32);
    const auto run = [&] { self.run_on(layered, gather, Bytes(kCount * 4), kCount * 16); };
    self.rank == 0 ? testing::expect_throws<CollectiveMismatch>(run, text) : run();
    check_reductions(self, layered, DType::f32, ReduceOp::sum, kCount);
  });
}

TEST(NodeMapTest, CountsNodesAndIndicesInRankOrder) {
  const NodeMap map(kDealt);
  EXPECT_EQ(map.nodes(), 3);
  EXPECT_EQ(map.width(), 2);
  EXPECT_EQ(map.node_of(4), 1);
  EXPECT_EQ(map.index_of(4), 1);
  EXPECT_EQ(map.members(2), (std::vector<int>{2, 5}));
  EXPECT_EQ(map.column(1), (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(map.is_hierarchical());
  EXPECT_FALSE(NodeMap(Machines{"a", "a", "b"}).is_hierarchical());
  EXPECT_FALSE(NodeMap(Machines{"a", "b", "c"}).is_hierarchical());
  EXPECT_FALSE(NodeMap(Machines{"a", "a"}).is_hierarchical());
}

TEST(HierarchicalReduceTest, ReducesMoreArraysThanAKernelTakes) {
  GANTRY_REQUIRE_DEVICES(1);
  constexpr int kRanks = 150;
  constexpr std::size_t kElements = 37;
  for (const DType dtype : {DType::f16, DType::f32, DType::i16}) {
    const auto inputs = inputs_of(kRanks, dtype, kElements);
    std::vector<int> order(kRanks);
    Bytes all(kRanks * inputs[0].size());
    for (int r = 0; r < kRanks; ++r) {
      order[static_cast<std::size_t>(r)] = (r * 7) % kRanks;
      std::copy(
          inputs[static_cast<std::size_t>(r)].begin(), inputs[static_cast<std::size_t>(r)].end(),
          all.begin() +
              static_cast<std::ptrdiff_t>(
                  static_cast<std::size_t>(order[static_cast<std::size_t>(r)]) * inputs[0].size()));
    }
    const ReduceOp op = dtype == DType::i16 ? ReduceOp::sum : ReduceOp::avg;
    const Tensor contributions = empty({static_cast<std::int64_t>(kRanks * kElements)},
                                       {.dtype = dtype, .device = Device::cuda(0)});
    const Tensor out =
        empty({static_cast<std::int64_t>(kElements)}, {.dtype = dtype, .device = Device::cuda(0)});
    const Stream stream = Stream::current(Device::cuda(0));
    driver().copy(contributions.data(), all.data(), all.size(), stream.native());
    reduce_ordered(out, contributions, order,
                   describe(CollectiveKind::all_reduce, 1, dtype, -1, op));
    Bytes result(out.nbytes());
    driver().copy(result.data(), out.data(), result.size(), stream.native());
    stream.synchronize();
    EXPECT_EQ(result, reduce_scalars(op, dtype, inputs, 0, kElements)) << name(dtype);
  }
}

}  // namespace
}  // namespace gantry
