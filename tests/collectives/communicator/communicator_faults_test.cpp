// Groups in one process whose ranks make different calls, or are late.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

using CommunicatorFaultsTest = testing::LocalGroupTest;

// Waits until the current stream's work has ended; its faults stay to be taken.
void await_without_faults(Device device) {
  const NativeEvent done = driver().create_event(device.index, {});
  driver().record_event(done, Stream::current(device).native());
  while (!driver().event_reached(done)) std::this_thread::yield();
  driver().destroy_event(done);
}

TEST_F(CommunicatorFaultsTest, MismatchesNameBothCallsAndTheGroupStaysIntact) {
  GANTRY_REQUIRE_DEVICES(2);
  struct Case {
    std::function<Work(Communicator&, Tensor&)> usual;
    std::function<Work(Communicator&, Tensor&)> odd;
    std::string texts[2];
  };
  const std::vector<Case> cases{
      {[](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       [](Communicator& c, Tensor& t) { return c.all_reduce(t, ReduceOp::max); },
       {"all_reduce sum f32[64]", "all_reduce max f32[64]"}},
      {[](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       [](Communicator& c, Tensor& t) {
         Tensor half = t.to(f16);
         return c.all_reduce(half);
       },
       {"all_reduce sum f32[64]", "all_reduce sum f16[64]"}},
      {[](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       [](Communicator& c, Tensor& t) {
         Tensor part = t.narrow(0, 0, 63);
         return c.all_reduce(part);
       },
       {"all_reduce sum f32[64]", "all_reduce sum f32[63]"}},
      {[](Communicator& c, Tensor& t) { return c.broadcast(t, 0); },
       [](Communicator& c, Tensor& t) { return c.broadcast(t, 1); },
       {"broadcast f32[64] root=0", "broadcast f32[64] root=1"}},
      {[](Communicator& c, Tensor& t) { return c.broadcast(t, 0); },
       [](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       {"broadcast f32[64] root=0", "all_reduce sum f32[64]"}},
      {[](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       [](Communicator& c, Tensor&) { return c.barrier(); },
       {"all_reduce sum f32[64]", "barrier"}},
      {[](Communicator& c, Tensor& t) { return c.all_reduce(t); },
       [](Communicator& c, Tensor& t) { return c.all_reduce(t, ReduceOp::sum, {.scale = 0.5}); },
       {"all_reduce sum f32[64]", "scale=0.5"}},
  };
  const int ranks = std::min(device_count(), 4);
  for (const char* algorithm : {"ll", "ll128", "ll128_two_shot", "one_shot", "two_shot"}) {
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
      for (const Case& one : cases) {
        Tensor tensor = full({64}, group.rank(), {.dtype = f32, .device = group.device()});
        std::string text;
        try {
          const bool odd = group.rank() == group.size() - 1;
          (odd ? one.odd : one.usual)(group, tensor).synchronize();
        } catch (const InvalidArgument& error) {
          text = error.what();
        }
        for (const std::string& part : one.texts) {
          if (text.find(part) == std::string::npos) {
            throw std::runtime_error("expected '" + part + "' in '" + text + "'");
          }
        }
        if (tensor.amin().item<int>() != group.rank() ||
            tensor.amax().item<int>() != group.rank()) {
          throw std::runtime_error("a call that failed changed its tensor: " + text);
        }
        suite.all_reduce(ReduceOp::sum, f32, 1000);
      }
    });
  }
}

TEST_F(CommunicatorFaultsTest, RanksThatDetectAMismatchLaterMakeTheSameCalls) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const TensorOptions options = {.dtype = f32, .device = group.device()};
    Tensor first = full({8}, 1, options);
    Tensor second = full({8}, group.rank() + 1, options);
    Tensor third = full({8}, group.rank() + 10, options);
    const Work work = group.all_reduce(first, group.rank() == 0 ? ReduceOp::sum : ReduceOp::max);
    // The mismatch is there before one rank's second call, and before the other's third.
    if (group.rank() == 0) await_without_faults(group.device());
    group.all_reduce(second);
    if (group.rank() == 1) await_without_faults(group.device());
    group.all_reduce(third);
    expect_throws<InvalidArgument>([&] { work.synchronize(); }, "called all_reduce max");
    suite.all(i32, 100);
    if (second[0].item<int>() != 3 || third[0].item<int>() != 21) {
      throw std::runtime_error("the ranks are out of step");
    }
  });
}

TEST_F(CommunicatorFaultsTest, AnOperationAnswersForItselfEvenIfALaterOneFailedSince) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& group) {
    Tensor tensor = ones({8}, {.dtype = f32, .device = group.device()});
    const ReduceOp op = group.rank() == 0 ? ReduceOp::sum : ReduceOp::max;
    const Work first = group.all_reduce(tensor, op);
    expect_throws<InvalidArgument>([&] { first.synchronize(); }, "collective #1: ");
    const Work second = group.all_reduce(tensor, op);
    await_without_faults(group.device());
    expect_throws<InvalidArgument>([&] { first.synchronize(); }, "collective #1: ");
    // The second fault is not reported yet.
    expect_throws<InvalidArgument>([&] { synchronize(group.device()); }, "collective #2: ");
    synchronize(group.device());
    expect_throws<InvalidArgument>([&] { second.synchronize(); }, "collective #2: ");
    suite.all(i32, 100);
  });
}

TEST_F(CommunicatorFaultsTest, EveryFailedOperationThrows) {
  GANTRY_REQUIRE_DEVICES(2);
  std::atomic<bool> is_enqueued = false;
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& group) {
    Tensor tensor = ones({8}, {.dtype = f32, .device = group.device()});
    const ReduceOp op = group.rank() == 0 ? ReduceOp::sum : ReduceOp::max;
    const Work first = group.all_reduce(tensor, op);
    const Work second = group.all_reduce(tensor, op);
    const Work third = group.all_reduce(tensor);
    for (int round = 0; round < 2; ++round) {
      // The first query throws the first error.
      expect_throws<InvalidArgument>([&] { second.synchronize(); }, "collective #");
      expect_throws<InvalidArgument>([&] { first.synchronize(); }, "collective #1: ");
      expect_throws<InvalidArgument>([&] { second.synchronize(); }, "collective #2: ");
      third.synchronize();
    }
    suite.all(i32, 100);
    if (group.rank() == 1) {
      while (!is_enqueued) std::this_thread::yield();
      return group.abort();
    }
    const Work lost = group.all_reduce(tensor);
    const Work last = group.all_reduce(tensor);
    is_enqueued = true;
    expect_throws<PeerLostError>([&] { last.synchronize(); }, "");
    expect_throws<PeerLostError>([&] { lost.synchronize(); }, "");
    third.synchronize();
  });
}

TEST_F(CommunicatorFaultsTest, EveryFailedReplayOfAGraphThrows) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& group) {
    Tensor tensor = ones({8}, {.dtype = f32, .device = group.device()});
    synchronize(group.device());
    {
      const StreamGuard guard(Stream::from_pool(group.device()));
      const NativeStream stream = Stream::current(group.device()).native();
      driver().begin_capture(stream, CaptureMode::thread_local_);
      group.all_reduce(tensor, group.rank() == 0 ? ReduceOp::sum : ReduceOp::max);
      const NativeGraph graph = driver().end_capture(stream);
      for (int run = 0; run < 3; ++run) {
        driver().launch_graph(graph, stream);
        expect_throws<InvalidArgument>([&] { synchronize(group.device()); }, "collective #1: ");
      }
      driver().destroy_graph(graph);
    }
    suite.all(i32, 100);
  });
}

TEST_F(CommunicatorFaultsTest, MismatchesLeaveStridedOutputsAlone) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const TensorOptions options = {.dtype = f32, .device = group.device()};
    Tensor strided = full({4, 8}, -7, options).t();
    { const Tensor freed = full({8, 4}, 12345, options); }
    Tensor sum = ones({8, 4}, options);
    const Work work = group.rank() == 0 ? group.all_reduce(sum) : group.broadcast(strided, 0);
    expect_throws<InvalidArgument>([&] { work.synchronize(); }, "called broadcast");
    if (strided.amin().item<int>() != -7 || strided.amax().item<int>() != -7) {
      throw std::runtime_error("a call that failed changed its tensor");
    }
    suite.all(i32, 100);
  });
}

TEST_F(CommunicatorFaultsTest, UnevenCountsThatDifferAreAMismatch) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Tensor input = zeros({4}, {.device = group.device()});
    Tensor output = zeros({4}, {.device = group.device()});
    // Rank 1 sends one to rank 0, which expects two.
    const std::vector<std::int64_t> rows =
        group.rank() == 0 ? std::vector<std::int64_t>{2, 2} : std::vector<std::int64_t>{1, 3};
    bool thrown = false;
    try {
      group.all_to_all(output, input, rows, rows).synchronize();
    } catch (const InvalidArgument&) {
      thrown = true;
    }
    if (!thrown) throw std::runtime_error("nobody noticed");
    suite.uneven_all_to_all(f32, 10);
  });
}

// Ranks that agree with all others get the names of the differing ranks too.
TEST_F(CommunicatorFaultsTest, UnevenMismatchesNameTheRanksThatDisagreeAndTheirSizes) {
  GANTRY_REQUIRE_DEVICES(4);
  on_ranks(4, [](CollectiveSuite& suite, Communicator& group) {
    // All blocks are of 4 elements, but rank 3 sends 8 to rank 0 and 6 to rank 1. Rank 2 agrees
    // with every other rank, and its kernel may end before they withdraw.
    std::vector<std::int64_t> sends(4, 4);
    const std::vector<std::int64_t> receives(4, 4);
    if (group.rank() == 3) sends = {8, 6, 4, 4};
    const std::int64_t sent = std::accumulate(sends.begin(), sends.end(), std::int64_t{0});
    const Tensor input = zeros({sent}, {.device = group.device()});
    Tensor output = zeros({16}, {.device = group.device()});
    const auto call = [&] { return group.all_to_all(output, input, receives, sends); };
    const char* const sizes = "rank 3 sends 8 elements to rank 0, which expects 4, in all_to_all";
    expect_throws<CollectiveMismatch>([&] { call().synchronize(); }, sizes);
    suite.uneven_all_to_all(f32, 10);
    // A device reports no second mismatch before its first one is taken. Querying an event does not
    // take it.
    const Work first = call();
    const Work second = call();
    Event done;
    done.record(Stream::current(group.device()));
    while (!driver().event_reached(done.native_handle())) std::this_thread::yield();
    expect_throws<CollectiveMismatch>([&] { first.synchronize(); }, sizes);
    expect_throws<CollectiveMismatch>([&] { second.synchronize(); }, sizes);
    suite.uneven_all_to_all(f32, 10);
  });
}

TEST_F(CommunicatorFaultsTest, AnAbortWakesKernelsThatWait) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor tensor = ones({1000}, {.device = Device::cuda(0)});
  const Work work = group[0].all_reduce(tensor);
  group[1].abort();
  EXPECT_THROW(work.synchronize(), PeerLostError);
  EXPECT_THROW((void)group[0].all_reduce(tensor), PeerLostError);
}

// Its loss is no news for a program that goes on without the rank, though no call has thrown it
// yet.
TEST_F(CommunicatorFaultsTest, AfterAShrinkTheOldGroupReportsNoLoss) {
  GANTRY_REQUIRE_DEVICES(3);
  std::atomic<int> submitted = 0;
  on_ranks(3, [&](CollectiveSuite&, Communicator& group) {
    Tensor tensor = ones({1000}, {.device = group.device()});
    if (group.rank() == 2) {
      while (submitted < 2) std::this_thread::yield();
      return group.abort();
    }
    const Work work = group.all_reduce(tensor);
    ++submitted;
    await_without_faults(group.device());
    const Communicator rest = group.shrink({2});
    synchronize(group.device());
    expect_throws<PeerLostError>([&] { work.synchronize(); }, "rank 2 aborted");
    tensor.fill_(1);
    rest.all_reduce(tensor).synchronize();
    EXPECT_EQ(tensor.amin().item<float>(), 2);
  });
}

TEST_F(CommunicatorFaultsTest, LeavingDoesNotWaitForOthersInAGraphForever) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor tensor = ones({1000}, {.device = Device::cuda(0)});
  synchronize(Device::cuda(0));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const StreamGuard guard(stream);
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  group[0].all_reduce(tensor);
  const NativeGraph graph = driver().end_capture(stream.native());
  driver().launch_graph(graph, stream.native());
  group.erase(group.begin());
  EXPECT_TRUE(stream.query());
  expect_throws<PeerLostError>([&] { (void)group[0].barrier(); }, "rank 0 aborted");
  driver().destroy_graph(graph);
}

TEST_F(CommunicatorFaultsTest, EverySynchronizingCallThrowsAFault) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor tensor = ones({1000}, {.device = Device::cuda(0)});
  (void)group[0].all_reduce(tensor);
  group[1].abort();
  EXPECT_THROW((void)tensor.sum().item<float>(), PeerLostError);
}

TEST_F(CommunicatorFaultsTest, HostCallsAgainstCollectivesAreMismatchesAtOnceOverHost) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  struct Case {
    std::string name;
    std::function<void(Communicator&)> call;
  };
  const std::vector<Case> host_calls{
      {"host_barrier", [](Communicator& c) { c.host_barrier(); }},
      {"all_gather_bytes", [](Communicator& c) { (void)c.all_gather_bytes("x"); }},
      {"split", [](Communicator& c) { (void)c.split(0); }}};
  const std::vector<Case> collectives{
      {"all_reduce sum f32[8]",
       [](Communicator& c) { c.all_reduce(ones({8}, {.dtype = f32, .device = c.device()})); }},
      {"all_reduce sum f32[300000]",
       [](Communicator& c) {
         c.all_reduce(ones({300'000}, {.dtype = f32, .device = c.device()}));
       }},
      {"barrier", [](Communicator& c) { c.barrier(); }}};
  const int ranks = std::min(device_count(), 3);
  for (const Case& host_call : host_calls) {
    for (const Case& collective : collectives) {
      for (const int odd : {0, ranks - 1}) {
        // The deadline is 600 s, that of the test less.
        on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
          const bool is_odd = group.rank() == odd;
          try {
            (is_odd ? host_call : collective).call(group);
            throw std::runtime_error("no mismatch");
          } catch (const CollectiveMismatch& error) {
            const std::string text = error.what();
            for (const std::string& part : {host_call.name, collective.name}) {
              if (text.find("called " + part) != std::string::npos) continue;
              throw std::runtime_error("expected '" + part + "' in '" + text + "'");
            }
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace gantry
