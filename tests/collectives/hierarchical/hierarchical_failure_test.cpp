// Hierarchical collectives in which a rank fails, with ranks as threads and machines by name.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/hierarchical/transport.hpp"
#include "device/sim/streams/sim_stream.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/reduction_checks.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::Bytes;
using testing::describe;
using testing::HostRank;

// The machine of each rank.
const std::vector<std::string> kTwoByTwo{"a", "a", "b", "b"};
// Elements of 4 bytes that do not fit into the first message, and are no multiple of anything.
constexpr std::size_t kCount = 8'209;

// Works until it is set to fail.
class FailingTransport final : public Transport {
 public:
  explicit FailingTransport(std::unique_ptr<Transport> wrapped) : wrapped_(std::move(wrapped)) {}
  std::string_view name() const override { return "failing"; }
  End run(const ResolvedCall& call, const Stream& stream) override {
    if (fails) throw OutOfMemoryError("no scratch memory", {});
    return wrapped_->run(call, stream);
  }
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    return wrapped_->run_together(messages, stream);
  }

  bool fails = false;

 private:
  std::unique_ptr<Transport> wrapped_;
};

TEST(HierarchicalFailureTest, AFailureInsideOneNodeReachesAllOthers) {
  GANTRY_REQUIRE_DEVICES(1);
  const NodeMap map(kTwoByTwo);
  testing::host_ranks(map.ranks(), [&](HostRank& self) {
    auto node = std::make_unique<FailingTransport>(
        self.transport->among(map.members(map.node_of(self.rank))));
    node->fails = self.rank == 1;
    HierarchicalTransport layered({.everyone = {self.rank, self.size, self.device},
                                   .map = map,
                                   .all = std::move(self.transport),
                                   .node = std::move(node)});
    const auto run = [&] {
      self.run_on(layered, describe(CollectiveKind::all_reduce, kCount, DType::f32),
                  Bytes(kCount * 4), kCount * 4);
    };
    if (self.rank == 1) {
      EXPECT_THROW(run(), OutOfMemoryError);
    } else {
      testing::expect_throws<PeerLostError>(run, "rank 1 aborted");
    }
  });
}

// Fills no memory of cuda:3, but only once the neighbour's kernel waits.
class RefusingDriver final : public testing::FaultDriver {
 public:
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override {
    if (stream.device != 3 || !is_armed) return FaultDriver::fill(dst, value, bytes, stream);
    while (neighbour == nullptr || !neighbour.load()->is_held_by_peers()) std::this_thread::yield();
    throw Error("no fill");
  }

  std::atomic<bool> is_armed{false};
  std::atomic<const sim::SimStream*> neighbour{nullptr};
};

// A rank's hierarchical transport over `machines`, and its next all_reduce.
class HierarchicalRank {
 public:
  HierarchicalRank(HostRank& rank, std::span<const std::string> machines,
                   std::chrono::milliseconds timeout, std::string_view group)
      : rank_(rank) {
    rank.transport.reset();
    transport_ = make_hierarchical_transport({rank.rank, rank.size, rank.device}, *rank.bootstrap,
                                             machines, "Simulated GPU", timeout, group);
    EXPECT_EQ(transport_->name(), "hierarchical");
    tensor_ = rank.on_device(Bytes(kCount * 4));
  }

  void all_reduce() {
    Descriptor what = describe(CollectiveKind::all_reduce, kCount, DType::f32);
    what.call = ++rank_.calls;
    transport_->run({{what, tensor_.data(), tensor_.data()}, rank_.size}, rank_.stream);
  }

 private:
  HostRank& rank_;
  std::unique_ptr<Transport> transport_;
  Tensor tensor_;
};

// Kernels of its node wait for it, and hosts of the other for them.
TEST(HierarchicalFailureTest, AFailureWakesKernelsOfItsNode) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(4);
  RefusingDriver refusing;
  std::atomic<int> woken{0};
  testing::host_ranks(4, [&](HostRank& self) {
    HierarchicalRank rank(self, kTwoByTwo, std::chrono::minutes(10), "failure-test");
    if (self.rank == 2) {
      refusing.neighbour = static_cast<const sim::SimStream*>(self.stream.native().handle);
    }
    if (self.rank == 3) {
      refusing.is_armed = true;
      testing::expect_throws<Error>([&] { rank.all_reduce(); }, "no fill");
      while (woken < 3) std::this_thread::yield();  // Leaving would wake them, too.
    } else {
      EXPECT_THROW(rank.all_reduce(), PeerLostError);
      self.stream.synchronize();
      ++woken;
    }
  });
}

// The machine of each rank, and the rank that waits for rank 3 on the same machine.
struct Layout {
  std::vector<std::string> machines;
  int waiting;
};

class LateRankTest : public ::testing::TestWithParam<Layout> {};

TEST_P(LateRankTest, IsNamedByItsNumberAmongAll) {
  GANTRY_REQUIRE_DEVICES(4);
  const auto& [machines, waiting] = GetParam();
  std::atomic<testing::StreamHold*> held{nullptr};
  testing::host_ranks(4, [&, &machines = machines, waiting = waiting](HostRank& self) {
    // The other machine waits for this one, and its deadline must not be the first.
    const bool is_beside = machines[static_cast<std::size_t>(self.rank)] == machines[3];
    const std::chrono::milliseconds timeout =
        is_beside ? std::chrono::milliseconds(1'000) : std::chrono::minutes(10);
    HierarchicalRank rank(self, machines, timeout, "late-test");
    if (self.rank == waiting) {
      try {
        rank.all_reduce();
        ADD_FAILURE() << "an operation without rank 3 ended";
      } catch (const TimeoutError& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{3}) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank(s) 3 held up"), std::string::npos)
            << error.what();
      }
      held.load()->release();
      held = nullptr;
    } else if (self.rank == 3) {
      testing::StreamHold hold(self.stream);
      held = &hold;
      EXPECT_THROW(rank.all_reduce(), Error);
      while (held != nullptr) std::this_thread::yield();
    } else {
      // The data may arrive before the news of the failure: then the next operation fails.
      EXPECT_THROW(
          {
            rank.all_reduce();
            rank.all_reduce();
          },
          Error);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LateRankTest,
                         ::testing::Values(Layout{kTwoByTwo, 2}, Layout{{"a", "b", "a", "b"}, 1}));

}  // namespace
}  // namespace gantry
