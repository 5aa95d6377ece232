// Collectives that Graph captures, on one device and on several, and replays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "tests/collectives/communicator/captured_operations.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::CapturedOperations;
using testing::CollectiveSuite;
using testing::LocalGroupTest;

constexpr int kRounds = 4;

class GraphCollectivesTest : public LocalGroupTest {
 protected:
  // The streams of several devices in one capture, each current on its device.
  class Branches {
   public:
    explicit Branches(const GraphCapture& capture, const std::vector<Device>& devices)
        : origin_(capture.stream()), first_(origin_.device()) {
      for (const Device device : devices) {
        if (device == origin_.device()) continue;
        streams_.push_back(Stream::from_pool(device));
        streams_.back().wait(origin_);
      }
      std::vector<Stream> all = streams_;
      all.push_back(origin_);
      guard_ = std::make_unique<MultiStreamGuard>(all);
    }
    void join() const {
      for (const Stream& stream : streams_) origin_.wait(stream);
    }

   private:
    Stream origin_;
    DeviceGuard first_;
    std::vector<Stream> streams_;
    std::unique_ptr<MultiStreamGuard> guard_;
  };

  static void capture_on(const std::vector<Device>& devices, Graph& graph,
                         const std::function<void()>& body) {
    GraphCapture capture(graph);
    {
      const Branches branches(capture, devices);
      body();
      branches.join();
    }
    capture.end();
  }
  // Replays behind the work of all devices, and waits.
  static void replay_on(const std::vector<Device>& devices, Graph& graph) {
    for (const Device device : devices) synchronize(device);
    graph.replay();
    for (const Device device : devices) synchronize(device);
  }
  static std::size_t allocated(int devices) {
    std::size_t sum = 0;
    for (int i = 0; i < devices; ++i) sum += memory::allocated(Device::cuda(i));
    return sum;
  }
  static bool has_no_pools(int devices) {
    for (int i = 0; i < devices; ++i) {
      if (memory::stats(Device::cuda(i)).num_pools != 0) return false;
    }
    return true;
  }
};

TEST_F(GraphCollectivesTest, EveryRankReplaysItsOwnGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {2, std::min(device_count(), 4)}) {
    on_ranks(ranks, [](CollectiveSuite& suite, Communicator& group) {
      for (const bool registers : {false, true}) {
        for (const std::int64_t count : {16, 5000, 150'000}) {
          Tensor memory;
          if (registers) {
            memory = empty({count * 4 * (6 + 4 * group.size()) + 16 * 1024},
                           {.dtype = u8, .device = group.device()});
            group.register_memory(memory);
          }
          {
            const CapturedOperations operations(group, count, memory);
            Graph graph;
            {
              GraphCapture capture(graph);
              operations.run();
              capture.end();
            }
            group.host_barrier();  // no rank synchronizes while another one captures
            for (int round = 1; round <= kRounds; ++round) {
              operations.set(round);
              graph.replay();
              operations.check(round);
            }
            synchronize(group.device());
            group.host_barrier();
          }
          if (registers) group.deregister_memory(memory);
        }
      }
      suite.all(i32, 100);
    });
  }
}

TEST_F(GraphCollectivesTest, ACapturedOperationOrdersOtherStreamsOfTheCapture) {
  GANTRY_REQUIRE_DEVICES(2);
  using Call = std::function<Work(const Communicator&, const Tensor&)>;
  const std::vector<Call> calls{
      [](const Communicator& group, const Tensor& tensor) { return group.all_reduce(tensor); },
      [](const Communicator& group, const Tensor& tensor) {
        return group.all_reduce_coalesced(std::vector<Tensor>{tensor});
      },
      [](const Communicator& group, const Tensor& tensor) {
        const int other = 1 - group.rank();
        return group.send_recv(tensor, other, tensor, other);
      }};
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    for (const Call& call : calls) {
      const Tensor tensor = zeros({1000}, group.device());
      const Tensor copy = zeros({1000}, group.device());
      const Stream side = Stream::from_pool(group.device());
      Graph graph;
      Work work;
      {
        GraphCapture capture(graph);
        work = call(group, tensor);
        {
          const StreamGuard guard(side);
          work.wait();
          copy.copy_(tensor);
        }
        capture.stream().wait(side);
        EXPECT_THROW((void)work.query(), CaptureError);
        EXPECT_THROW(work.synchronize(), CaptureError);
        capture.end();
      }
      EXPECT_NO_THROW(work.wait());
      EXPECT_THROW((void)work.query(), CaptureError);
      group.host_barrier();  // no rank synchronizes while another one captures
      for (int round = 1; round <= kRounds; ++round) {
        tensor.fill_(group.rank() + round);
        graph.replay();
        EXPECT_TRUE(copy.equal(tensor)) << round;
      }
      synchronize(group.device());
      group.host_barrier();
    }
  });
}

// The capture would refuse to end with a branch that nothing waits for.
TEST_F(GraphCollectivesTest, OperationsOnTwoBranchesFollowEachOther) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    std::vector<Tensor> sums;
    for (int i = 0; i < 3; ++i) sums.push_back(ones({1000}, group.device()));
    const Stream first = Stream::from_pool(group.device());
    const Stream second = Stream::from_pool(group.device());
    synchronize(group.device());
    group.host_barrier();  // no rank synchronizes while another one captures
    Graph graph;
    {
      GraphCapture capture(graph);
      for (const Stream* branch : {&first, &second}) branch->wait(capture.stream());
      const std::array order{first, second, capture.stream()};
      for (std::size_t i = 0; i < order.size(); ++i) {
        const StreamGuard guard(order[i]);
        group.all_reduce(sums[i]);
      }
      capture.end();
    }
    group.host_barrier();
    for (int round = 0; round < kRounds; ++round) graph.replay();
    for (const Tensor& sum : sums) {
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(1000, std::exp2f(kRounds)));
    }
    group.host_barrier();
  });
}

TEST_F(GraphCollectivesTest, OneGraphRunsTheOperationsOfAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> all = devices(std::min(device_count(), 3));
  const std::vector<Communicator> group = Communicator::local(all);
  for (const std::int64_t count : {16, 5000, 150'000}) {
    std::vector<CapturedOperations> operations;
    for (const Communicator& rank : group) operations.emplace_back(rank, count);
    Graph graph;
    capture_on(all, graph, [&] {
      for (const CapturedOperations& rank : operations) rank.run();
    });
    for (int round = 1; round <= kRounds; ++round) {
      for (const CapturedOperations& rank : operations) rank.set(round);
      replay_on(all, graph);
      for (const CapturedOperations& rank : operations) ASSERT_NO_THROW(rank.check(round));
    }
  }
}

TEST_F(GraphCollectivesTest, CommOperationsReplayOnAllDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> all = devices(device_count());
  const auto n = static_cast<std::int64_t>(all.size());
  for (const std::int64_t count : {60, 30'000, 600'000}) {
    const std::int64_t rows = count * n;
    const Tensor source = zeros({rows}, all[0]);
    std::vector<Tensor> ones_of;
    for (const Device device : all) ones_of.push_back(zeros({count}, device));
    std::vector<Tensor> copies;
    std::vector<Tensor> chunks;
    Tensor sum;
    Tensor joined;
    std::vector<std::vector<Tensor>> lists;
    Graph graph;
    capture_on(all, graph, [&] {
      copies = comm::broadcast(source, all);
      for (const Tensor& copy : copies) {
        if (!copy.is_view_of(source)) copy.add_(1);
      }
      sum = comm::reduce_add(copies, all.back());
      chunks = comm::scatter(sum, all);
      joined = comm::gather(chunks, {.destination = all[0]});
      lists = comm::broadcast_coalesced({joined.narrow(0, 0, 5), joined}, all);
      comm::all_reduce(ones_of);
    });
    for (int round = 1; round <= kRounds; ++round) {
      source.copy_(arange(rows, {.dtype = i64}).remainder(89).to(f32).mul(round));
      for (std::size_t i = 0; i < all.size(); ++i) ones_of[i].fill_(static_cast<int>(i) + round);
      replay_on(all, graph);
      // The copy on the source's own device may be the source itself.
      const std::int64_t added = copies[0].is_view_of(source) ? n - 1 : n;
      const Tensor expected =
          arange(rows, {.dtype = i64}).remainder(89).mul(round * n).add(added).to(f32);
      const std::vector<float> values = expected.to_vector<float>();
      EXPECT_EQ(sum.to_vector<float>(), values);
      EXPECT_EQ(joined.to_vector<float>(), values);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(lists[i][1].to_vector<float>(), values) << "device " << i;
        EXPECT_EQ(lists[i][0].to_vector<float>(), std::vector<float>(&values[0], &values[5]));
        EXPECT_EQ(ones_of[i].amax().item<float>(), static_cast<float>(n * (n - 1) / 2 + n * round));
        EXPECT_EQ(ones_of[i].amin().item<float>(), static_cast<float>(n * (n - 1) / 2 + n * round));
      }
    }
  }
}

// Fails the nth call of each kind of driver call in a capture of everything.
TEST_F(GraphCollectivesTest, FailuresInTheCaptureLeaveNoMemoryBehind) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> all = devices(2);
  const Tensor source = ones({4096}, all[0]);  // outlives the graphs, which read it
  const auto capture_all = [&](Graph& graph) {
    capture_on(all, graph, [&] {
      const std::vector<Tensor> copies = comm::broadcast(source, all);
      const Tensor sum = comm::reduce_add(copies, all[1]);
      const std::vector<Tensor> chunks = comm::scatter(sum, all);
      static_cast<void>(comm::gather(chunks, {.destination = all[0]}));
      static_cast<void>(comm::reduce_add_coalesced({{copies[0]}, {copies[1]}}, all[0]));
    });
  };
  const auto settle = [&] {
    for (const Device device : all) synchronize(device);
    EXPECT_TRUE(testing::eventually([] { return has_no_pools(2); }));
    memory::empty_cache();
  };
  {
    Graph warm;
    capture_all(warm);
  }
  settle();
  const std::size_t before = allocated(2);
  testing::FaultDriver faults;
  {
    Graph counted;
    capture_all(counted);
  }
  settle();
  const std::map<std::string, std::uint64_t> counts = faults.counts();
  int failures = 0;
  for (const char* call :
       {"begin_capture", "end_capture", "record_event", "wait_event", "copy_peer", "copy_batch",
        "copy", "fill", "capture_id", "retain_by_capture", "create_event"}) {
    const auto found = counts.find(call);
    if (found == counts.end()) continue;
    for (std::uint64_t nth = 1; nth <= std::min<std::uint64_t>(found->second, 12); ++nth) {
      {
        Graph graph;
        faults.reset_counts();
        faults.fail_on(call, nth);
        try {
          capture_all(graph);
        } catch (const Error&) {
          ++failures;
          EXPECT_FALSE(graph.is_captured()) << call << " " << nth;
        }
        faults.fail_nothing();
        EXPECT_FALSE(is_current_stream_capturing()) << call << " " << nth;
      }
      settle();
      ASSERT_EQ(allocated(2), before) << call << " " << nth;
    }
  }
  EXPECT_GT(failures, 10);
  // Everything is usable again.
  Graph graph;
  capture_all(graph);
  replay_on(all, graph);
}

}  // namespace
}  // namespace gantry
