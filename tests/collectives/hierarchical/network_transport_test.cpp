// NCCL between pretended machines, with ranks as threads on simulated devices.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/hierarchical/transport.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/reduction_checks.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/sanitized.hpp"

namespace {

std::atomic<unsigned long long> link_bytes{0};

}  // namespace

// In place of the system's: counts the bytes of links between hosts.
extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message,
                                                                  int flags) {
  static const auto next = reinterpret_cast<decltype(&sendmsg)>(::dlsym(RTLD_NEXT, "sendmsg"));
  const ssize_t sent = next(socket, message, flags);
  if (sent > 0) link_bytes += static_cast<unsigned long long>(sent);
  return sent;
}

namespace gantry {
namespace {

using testing::Bytes;
using testing::check_reductions;
using testing::describe;
using testing::HostRank;
using testing::inputs_of;
using testing::slice;

// The machine of each rank.
using Machines = std::vector<std::string>;

unsigned long long nccl_bytes() {
  static const auto count = [] {
    void* const library = ::dlopen(std::getenv("GANTRY_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<unsigned long long (*)()>(::dlsym(library, "simulated_nccl_bytes"));
  }();
  return count();
}

void network_ranks(const Machines& machines, const std::function<void(HostRank&, Transport&)>& fn,
                   const std::string& why_not = {}) {
  testing::host_ranks(static_cast<int>(machines.size()), [&](HostRank& self) {
    self.transport.reset();
    const auto transport =
        make_hierarchical_transport({self.rank, self.size, self.device}, *self.bootstrap, machines,
                                    "Simulated GPU", std::chrono::seconds(60), "network", why_not);
    ASSERT_EQ(transport->uses_nccl(), why_not.empty());
    fn(self, *transport);
    self.stream.synchronize();
    transport->close();
  });
}

// Two to eight ranks on two to four machines.
const Machines kLayouts[] = {
    {"a", "b"},
    {"a", "b", "c"},
    {"a", "b", "c", "d"},
    {"a", "a", "b"},
    {"a", "b", "b", "c", "b"},
    {"a", "a", "b", "b"},
    {"a", "b", "b", "a"},
    {"a", "b", "c", "a", "b", "c"},
    {"a", "a", "a", "b", "b", "b"},
    {"a", "a", "a", "b", "c", "c", "d"},
    {"a", "a", "b", "b", "c", "c", "d", "d"},
    {"a", "b", "a", "b", "a", "b", "a", "b"},
};

class NetworkTransportTest : public ::testing::TestWithParam<Machines> {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_SIM();
    GANTRY_REQUIRE_DEVICES(8);
  }
};

// Elements of 4 bytes that do not fit into the first message, and are no multiple of anything.
constexpr std::size_t kCount = 8'209;

TEST_P(NetworkTransportTest, ReducesEveryDTypeByEveryOpToTheBitsOfTheDefinition) {
  network_ranks(GetParam(), [](HostRank& self, Transport& network) {
    std::size_t pairs = 0;
    for (const DType dtype : testing::kAllDTypes) {
      for (const ReduceOp op : testing::kAllOps) {
        if (!testing::is_defined(op, dtype)) continue;
        const std::size_t counts[] = {7, kCount * 4 / element_size(dtype)};
        ++pairs;
        // Many ranks take turns with the counts. Under ThreadSanitizer some long arrays are enough.
        const std::size_t turns = self.size <= 4 ? 1 : 2;
        const std::size_t long_turns = turns * (testing::kIsThreadSanitized ? 8 : 1);
        if (pairs % turns == 0) check_reductions(self, network, dtype, op, counts[0]);
        if (pairs % long_turns == turns - 1) check_reductions(self, network, dtype, op, counts[1]);
      }
    }
    check_reductions(self, network, DType::bf16, ReduceOp::sum, kCount * 2, 0.3);
    check_reductions(self, network, DType::f32, ReduceOp::avg, kCount, 0.3);
  });
}

TEST_P(NetworkTransportTest, MovesArraysOfEveryDType) {
  network_ranks(GetParam(), [](HostRank& self, Transport& network) {
    const auto ranks = static_cast<std::size_t>(self.size);
    const auto own = static_cast<std::size_t>(self.rank);
    for (const DType dtype : testing::kAllDTypes) {
      for (const std::size_t count : {std::size_t{5}, kCount * 4 / element_size(dtype)}) {
        SCOPED_TRACE(count);
        const std::size_t bytes = count * element_size(dtype);
        const auto inputs = inputs_of(self.size, dtype, count * ranks);
        Bytes gathered, transposed;
        for (std::size_t r = 0; r < ranks; ++r) {
          const Bytes head = slice(inputs[r], 0, bytes);
          gathered.insert(gathered.end(), head.begin(), head.end());
          const Bytes block = slice(inputs[r], own * bytes, bytes);
          transposed.insert(transposed.end(), block.begin(), block.end());
        }
        const auto run = [&](CollectiveKind kind, int to, const Bytes& in, std::size_t out_bytes) {
          return self.run_on(network, describe(kind, count, dtype, to), in, out_bytes);
        };
        const Bytes head = slice(inputs[own], 0, bytes);
        for (std::size_t root = 0; root < ranks; root += ranks - 1) {
          const int to = static_cast<int>(root);
          const bool is_root = own == root;
          EXPECT_EQ(run(CollectiveKind::broadcast, to, head, bytes), slice(inputs[root], 0, bytes));
          EXPECT_EQ(run(CollectiveKind::gather, to, head, is_root ? bytes * ranks : 8),
                    is_root ? gathered : Bytes(8, std::byte{0x5a}));
          EXPECT_EQ(run(CollectiveKind::scatter, to, inputs[own], bytes),
                    slice(inputs[root], own * bytes, bytes));
        }
        EXPECT_EQ(run(CollectiveKind::all_gather, -1, head, bytes * ranks), gathered);
        EXPECT_EQ(run(CollectiveKind::all_to_all, -1, inputs[own], bytes * ranks), transposed);
      }
    }
  });
}

TEST_P(NetworkTransportTest, NcclMovesTheBytesAndTheLinksDoNot) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const auto moved = [&](const std::string& why_not) {
    const unsigned long long before[] = {nccl_bytes(), link_bytes};
    network_ranks(
        GetParam(),
        [](HostRank& self, Transport& network) {
          for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather}) {
            self.run_on(network, describe(kind, kBytes / 4, DType::f32), Bytes(kBytes),
                        kind == CollectiveKind::all_gather
                            ? kBytes * static_cast<std::size_t>(self.size)
                            : kBytes);
          }
        },
        why_not);
    return std::pair(nccl_bytes() - before[0], link_bytes - before[1]);
  };
  const auto [by_nccl, beside_it] = moved("");
  EXPECT_GT(by_nccl, kBytes);
  EXPECT_LT(beside_it, kBytes / 20);
  const auto [none, by_links] = moved("not wanted");
  EXPECT_EQ(none, 0U);
  EXPECT_GT(by_links, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Layouts, NetworkTransportTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) {
                           std::string name;
                           for (const std::string& machine : info.param) name += machine;
                           return name;
                         });

const Machines kThree{"a", "b", "c"};

TEST(NetworkTransportCallsTest, AHostDoesNotWaitForTheTransfer) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(3);
  std::atomic<int> submitted{0};
  network_ranks(kThree, [&](HostRank& self, Transport& network) {
    const Tensor data = self.on_device(Bytes(kCount * 4));
    if (self.rank == 0) {
      // Its device is busy until all hosts have come back.
      driver().launch_host_function(
          self.stream.native(),
          [](void* count) {
            while (*static_cast<std::atomic<int>*>(count) < 3) std::this_thread::yield();
          },
          &submitted);
    }
    Descriptor what = describe(CollectiveKind::all_reduce, kCount, DType::f32);
    what.call = 1;
    network.run({{what, data.data(), data.data()}, self.size}, self.stream);
    ++submitted;
    self.stream.synchronize();
  });
}

TEST(NetworkTransportCallsTest, MismatchesAreNamedOnEveryRankAndTheGroupStaysIntact) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(3);
  network_ranks(kThree, [](HostRank& self, Transport& network) {
    const std::size_t count = self.rank == 2 ? kCount * 2 : kCount;
    testing::expect_throws<CollectiveMismatch>(
        [&] {
          self.run_on(network, describe(CollectiveKind::all_reduce, count, DType::f32),
                      Bytes(kCount * 8), kCount * 8);
        },
        "rank 0 called all_reduce sum f32[8209] and rank 2 called all_reduce sum f32[16418]");
    check_reductions(self, network, DType::f32, ReduceOp::sum, kCount);
  });
}

TEST(NetworkTransportCallsTest, MovesUnequalBlocks) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(4);
  for (const Machines& machines : {kThree, Machines{"a", "a", "b", "b"}}) {
    const auto n = static_cast<std::int64_t>(machines.size());
    const unsigned long long before = nccl_bytes();
    network_ranks(machines, [n](HostRank& self, Transport& network) {
      // Rank s sends 500'000·s + r elements of value s to rank r.
      std::vector<std::int64_t> sends, receives;
      Bytes in, expected;
      const auto add = [](Bytes& to, std::int64_t count, std::int64_t value) {
        to.insert(to.end(), static_cast<std::size_t>(count), static_cast<std::byte>(value));
      };
      for (std::int64_t r = 0; r < n; ++r) {
        sends.push_back(500'000 * self.rank + r);
        receives.push_back(500'000 * r + self.rank);
        add(in, sends.back(), self.rank);
        add(expected, receives.back(), r);
      }
      Descriptor what = describe(CollectiveKind::all_to_all, 0, DType::u8);
      what.count = -1;
      for (int turn = 0; turn < 2; ++turn)
        EXPECT_EQ(self.run_on(network, what, in, expected.size(), sends, receives), expected);
      check_reductions(self, network, DType::f32, ReduceOp::sum, kCount);
    });
    EXPECT_GT(nccl_bytes() - before, 2 * 3'000'000U);
  }
}

// Its host has entered. Ranks of its machine wait for it, and ranks of others wait for these.
TEST(NetworkTransportCallsTest, ADeviceThatHasNotBegunAtTheDeadlineIsNamedAndNoOther) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(4);
  for (const Machines& machines : {kThree, Machines{"a", "a", "b", "b"}}) {
    const int late = static_cast<int>(machines.size()) - 1;
    std::atomic<int> waiting{late};
    testing::host_ranks(late + 1, [&](HostRank& self) {
      self.transport.reset();
      const auto network = make_hierarchical_transport({self.rank, self.size, self.device},
                                                       *self.bootstrap, machines, "Simulated GPU",
                                                       std::chrono::seconds(2), "late", "");
      const Tensor data = self.on_device(Bytes(kCount * 4));
      if (self.rank == late) {
        driver().launch_host_function(
            self.stream.native(),
            [](void* count) {
              while (*static_cast<std::atomic<int>*>(count) > 0) std::this_thread::yield();
            },
            &waiting);
      }
      Descriptor what = describe(CollectiveKind::all_reduce, kCount, DType::f32);
      what.call = 1;
      try {
        network->run({{what, data.data(), data.data()}, self.size}, self.stream);
        for (;;) {
          network->require_intact();
          std::this_thread::yield();
        }
      } catch (const TimeoutError& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{late}) << error.what();
      }
      if (self.rank != late) --waiting;
      self.stream.synchronize();
    });
  }
}

TEST(NetworkTransportCallsTest, ACaptureIsRefusedByName) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(4);
  for (const Machines& machines : {kThree, Machines{"a", "a", "b", "b"}}) {
    network_ranks(machines, [](HostRank& self, Transport& network) {
      const Tensor data = self.on_device(Bytes(kCount * 4));
      Descriptor what = describe(CollectiveKind::all_reduce, kCount, DType::f32);
      driver().begin_capture(self.stream.native(), CaptureMode::thread_local_);
      testing::expect_throws<CaptureError>(
          [&] {
            network.run({{what, data.data(), data.data()}, self.size}, self.stream);
          },
          "all_reduce: expected a stream that is not being captured");
      driver().destroy_graph(driver().end_capture(self.stream.native()));
      check_reductions(self, network, DType::f32, ReduceOp::sum, kCount);
    });
  }
}

}  // namespace
}  // namespace gantry
