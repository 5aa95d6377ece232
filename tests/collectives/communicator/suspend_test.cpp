// Communicators that give their workspace back, and go on later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/graph.hpp>

#include "tests/collectives/communicator/captured_operations.hpp"
#include "tests/collectives/communicator/local_group.hpp"

namespace gantry {
namespace {

using testing::CapturedOperations;
using testing::CollectiveSuite;

constexpr std::size_t kWorkspace = std::size_t{32} << 20;

class SuspendTest : public testing::LocalGroupTest {};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

template <class Exception>
void require_error(const std::string& part, const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    require(std::string(error.what()).find(part) != std::string::npos,
            "expected '" + part + "' in '" + error.what() + "'");
    return;
  }
  throw std::runtime_error("expected the error '" + part + "'");
}

std::size_t free_bytes(const Communicator& group) {
  return memory::mem_get_info(group.device()).free;
}

TEST_F(SuspendTest, OperationsGoOnWithTheSameResults) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {2, std::min(device_count(), 4)}) {
    on_ranks(ranks, [](CollectiveSuite& suite, Communicator& group) {
      const Tensor memory = empty({4 << 20}, {.dtype = u8, .device = group.device()});
      group.register_memory(memory);
      for (int round = 1; round <= 3; ++round) {
        suite.all(i32, 100);
        for (const std::int64_t count : {16, 5000, 100'000}) {
          const CapturedOperations operations(group, count);
          operations.set(round);
          operations.run();
          operations.check(round);
        }
        const CapturedOperations registered(group, 20'000, memory);
        registered.set(round);
        registered.run();
        registered.check(round);
        require(!group.is_suspended(), "not suspended yet");
        group.host_barrier();
        const std::size_t before = free_bytes(group);
        group.host_barrier();
        group.suspend();
        require(group.is_suspended(), "suspended");
        require(free_bytes(group) >= before + kWorkspace, "the workspace was not given back");
        group.host_barrier();
        group.resume();
        require(!group.is_suspended(), "resumed");
      }
      suite.all(f32, 5000);
    });
  }
}

TEST_F(SuspendTest, ASuspendedGroupRefusesOperationsAndStaysIntact) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Tensor data = ones({100}, {.device = group.device()});
    require_error<InvalidArgument>("resume: expected a suspended communicator, but got one in use",
                                   [&] { group.resume(); });
    group.suspend();
    require_error<InvalidArgument>("suspend: expected a communicator in use, but got a suspended",
                                   [&] { group.suspend(); });
    require_error<InvalidArgument>(
        "all_reduce: expected a communicator in use, but got a suspended",
        [&] { group.all_reduce(data); });
    require_error<InvalidArgument>("send: expected a communicator in use",
                                   [&] { group.send(data, 1 - group.rank()); });
    require_error<InvalidArgument>("expected a communicator in use", [&] {
      auto messages = group.group();
      group.send(data, 1 - group.rank());
      group.recv(data, 1 - group.rank());
      messages.end();
    });
    require(data.amax().item<float>() == 1, "a refused operation changed its tensor");
    require(group.all_gather_bytes(std::to_string(group.rank())).size() == 2, "hosts still meet");
    {
      // Groups of a suspended one have a workspace of their own.
      const Communicator half = group.split(0, group.rank());
      const Tensor sum = ones({100}, {.device = group.device()});
      half.all_reduce(sum);
      require(sum.amax().item<float>() == 2, "the other group");
    }
    group.resume();
    suite.all(i32, 1000);
  });
}

TEST_F(SuspendTest, CapturedOperationsKeepTheWorkspace) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Tensor data = ones({100}, {.device = group.device()});
    Graph graph;
    {
      const GraphCapture capture(graph);
      group.all_reduce(data);
    }
    require_error<InvalidArgument>("suspend: expected no captured operations",
                                   [&] { group.suspend(); });
    require(!group.is_suspended(), "it is in use");
    graph.replay();
    require(data.amax().item<float>() == 2, "the graph");
    suite.all(i32, 100);
  });
}

TEST_F(SuspendTest, AMessageOnItsWayKeepsTheWorkspace) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Tensor data = full({10}, group.rank() + 5, {.device = group.device()});
    if (group.rank() == 0) group.send(data, 1);
    require_error<InvalidArgument>(
        "suspend: expected all messages to be received, but got one of rank 0 that is not on rank "
        "1",
        [&] { group.suspend(); });
    if (group.rank() == 1) group.recv(data, 0);
    require(data.amax().item<float>() == 5, "the message");
    group.suspend();
    group.resume();
    suite.all(i32, 100);
  });
}

TEST_F(SuspendTest, AGroupOfOneHasNothingToGiveBack) {
  const Communicator group = Communicator::local({Device::cuda(0)}).front();
  const Tensor data = ones({10}, {.device = group.device()});
  group.suspend();
  EXPECT_TRUE(group.is_suspended());
  group.resume();
  group.all_reduce(data);
  EXPECT_EQ(data.amax().item<float>(), 1);
  EXPECT_THROW((void)Communicator().is_suspended(), InvalidArgument);
}

TEST_F(SuspendTest, ADifferentCallIsAMismatchOfAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    require_error<InvalidArgument>("called", [&] {
      if (group.rank() == 0) {
        group.suspend();
      } else {
        group.host_barrier();
      }
    });
    require(!group.is_suspended(), "nothing is suspended");
  });
}

}  // namespace
}  // namespace gantry
