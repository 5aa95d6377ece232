// Operations on memory that all ranks have open: the bits of every other way, and what can go
// wrong.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;

constexpr std::int64_t kArenaBytes = std::int64_t{8} << 20;

class RegisteredMemoryTest : public testing::LocalGroupTest {
 protected:
  static Tensor arena(const Communicator& group, std::int64_t bytes = kArenaBytes) {
    return empty({bytes}, {.dtype = u8, .device = group.device()});
  }
};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// The text of the exception that `action` must throw.
template <class Exception>
std::string text_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  throw std::runtime_error("nothing was thrown");
}

void require_part(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "expected '" + part + "' in '" + text + "'");
}

class EveryChoice : public RegisteredMemoryTest,
                    public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryChoice, GivesTheDefinedBitsForEveryOperation) {
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  for (const int ranks : {2, 3, std::min(device_count(), 8)}) {
    if (ranks > device_count()) continue;
    on_ranks(ranks, [](CollectiveSuite& suite, Communicator& group) {
      const Tensor memory = arena(group);
      group.register_memory(memory);
      suite.use_arena(memory);
      for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
        suite.all(dtype, 640);
      }
      for (const std::int64_t count : {0, 1, 3, 7, 8, 255, 4097, 100'003}) {
        suite.all(f32, count);
        suite.all(bf16, count, 1);
      }
      suite.all(u8, 1001, 3);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Choices, EveryChoice,
                         ::testing::Values("auto", "zero_copy", "copy", "two_shot"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(RegisteredMemoryTest, LargeOperations) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite& suite, Communicator& group) {
    const std::int64_t large = (testing::kIsSanitized ? 512 << 10 : 4 << 20) + 76;
    const Tensor memory = arena(group, std::int64_t{80} << 20);
    group.register_memory(memory);
    suite.use_arena(memory);
    suite.all_reduce(ReduceOp::sum, f32, large);
    suite.all_reduce(ReduceOp::avg, bf16, large + 1);
    suite.reduce(ReduceOp::sum, f32, large, 1);
    suite.reduce(ReduceOp::max, bf16, large + 1, 0);
    suite.broadcast(f32, large, 1);
    suite.broadcast(u8, large + 1, 0);
    suite.reduce_scatter(ReduceOp::sum, f64, large / 8);
    suite.all_gather(i64, large / 4);
    suite.all_to_all(i64, large / 8);
  });
}

TEST_P(EveryChoice, WritesOutputsWhereverTheyLie) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite&, Communicator& group) {
    const std::int64_t n = group.size();
    const Tensor memory = arena(group);
    group.register_memory(memory);
    for (const DType dtype : {u8, f16, f32, f64}) {
      for (const std::int64_t count : {std::int64_t{64}, std::int64_t{100'000}}) {
        const TensorOptions options = {.dtype = dtype, .device = group.device()};
        Tensor input = memory.view(dtype).narrow(0, 0, n * count);
        input.fill_(group.rank() + 1);
        const auto expect = [&](const Tensor& output, const Tensor& around, double least,
                                double most) {
          require(output.amin().item<double>() == least && output.amax().item<double>() == most &&
                      around[0].item<double>() == 0 && around[-1].item<double>() == 0,
                  "a result in " + std::string(name(dtype)) + " is wrong");
        };
        const Tensor share = zeros({count + 2}, options);
        Tensor sum = share.narrow(0, 1, count);
        group.reduce_scatter(sum, input);
        expect(sum, share, n * (n + 1) / 2, n * (n + 1) / 2);
        const Tensor whole = zeros({n * count + 2}, options);
        Tensor shares = whole.narrow(0, 1, n * count);
        group.all_to_all(shares, input);
        expect(shares, whole, 1, n);
        shares.zero_();
        group.all_gather(shares, input.narrow(0, 0, count));
        expect(shares, whole, 1, n);
      }
    }
  });
}

TEST_F(RegisteredMemoryTest, OperationsFollowEachOtherWithoutTheHost) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite&, Communicator& group) {
    constexpr std::int64_t kCount = 50'000;
    const Tensor memory = empty({kCount}, {.dtype = i64, .device = group.device()});
    group.register_memory(memory);
    Tensor tensor = memory;
    tensor.fill_(group.rank() + 1);
    synchronize(group.device());
    Tensor joined = empty({kCount * group.size()}, {.dtype = i64, .device = group.device()});
    group.register_memory(joined);
    // The next operation overwrites what peers may still be reading, were it not ordered.
    std::int64_t expected = 0;
    for (int rank = 0; rank < group.size(); ++rank) expected += rank + 1;
    for (int round = 0; round < 12; ++round) {
      const StreamGuard guard(Stream::from_pool(group.device()));
      group.all_reduce(tensor);
      if (round > 0) expected *= group.size();
      group.all_gather(joined, tensor);
      group.all_reduce(tensor, ReduceOp::max);
      group.reduce(tensor, round % group.size(), ReduceOp::max);
      group.broadcast(tensor, (round + 1) % group.size());
    }
    group.barrier().synchronize();
    require(tensor.amin().item<std::int64_t>() == expected, "a sum is too small");
    require(tensor.amax().item<std::int64_t>() == expected, "a sum is too large");
    require(joined.amin().item<std::int64_t>() == expected, "a gathered value is too small");
  });
}

TEST_F(RegisteredMemoryTest, AShareThatIsInItsPlaceStaysThere) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm : {"copy", "ll", "one_shot"}) {
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    on_ranks(std::min(device_count(), 4), [](CollectiveSuite&, Communicator& group) {
      const int n = group.size();
      Tensor all = zeros({n * 1024}, {.dtype = i32, .device = group.device()});
      group.register_memory(all);
      Tensor mine = all.narrow(0, group.rank() * 1024, 1024);
      mine.fill_(group.rank() + 1);
      group.all_gather(all, mine);
      const Tensor rows = all.view({n, 1024});
      for (int rank = 0; rank < n; ++rank) {
        require(
            rows[rank].amin().item<int>() == rank + 1 && rows[rank].amax().item<int>() == rank + 1,
            "row " + std::to_string(rank) + " is wrong");
      }
    });
  }
}

TEST_F(RegisteredMemoryTest, GraphsRunItAgain) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(std::min(device_count(), 3), [](CollectiveSuite&, Communicator& group) {
    Tensor sum = full({40'000}, 1, {.dtype = i64, .device = group.device()});
    Tensor joined = empty({40'000 * group.size()}, {.dtype = i64, .device = group.device()});
    group.register_memory(sum);
    group.register_memory(joined);
    const Stream stream = Stream::from_pool(group.device());
    const StreamGuard guard(stream);
    stream.wait(Stream::default_stream(group.device()));
    driver().begin_capture(stream.native(), CaptureMode::thread_local_);
    group.all_reduce(sum);
    group.all_gather(joined, sum);
    const NativeGraph graph = driver().end_capture(stream.native());
    std::int64_t expected = 1;
    for (int round = 0; round < 5; ++round) {
      driver().launch_graph(graph, stream.native());
      expected *= group.size();
    }
    synchronize(group.device());
    require(joined.amin().item<std::int64_t>() == expected &&
                joined.amax().item<std::int64_t>() == expected,
            "a replay went wrong");
    driver().destroy_graph(graph);
  });
}

TEST_F(RegisteredMemoryTest, BranchesOfAGraphRunOperationsOneAfterTheOther) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    std::vector<Tensor> sums;
    std::vector<Stream> streams;
    for (int branch = 0; branch < 4; ++branch) {
      sums.push_back(full({300'000}, branch + 1, {.dtype = i64, .device = group.device()}));
      streams.push_back(Stream::from_pool(group.device()));
    }
    group.register_memory(sums[3]);
    synchronize(group.device());
    const Stream& first = streams[0];
    driver().begin_capture(first.native(), CaptureMode::relaxed);
    for (const Stream& stream : streams) {
      if (stream != first) stream.wait(first);
    }
    for (std::size_t branch = 0; branch < 4; ++branch) {
      const StreamGuard guard(streams[branch]);
      group.all_reduce(sums[branch]);
    }
    for (const Stream& stream : streams) {
      if (stream != first) first.wait(stream);
    }
    const NativeGraph graph = driver().end_capture(first.native());
    for (int round = 0; round < 10; ++round) driver().launch_graph(graph, first.native());
    first.synchronize();
    for (std::int64_t branch = 0; branch < 4; ++branch) {
      const Tensor& sum = sums[static_cast<std::size_t>(branch)];
      require(sum.amin().item<std::int64_t>() == (branch + 1) << 10 &&
                  sum.amax().item<std::int64_t>() == (branch + 1) << 10,
              "a branch went wrong");
    }
    driver().destroy_graph(graph);
  });
}

TEST_F(RegisteredMemoryTest, CopiesUseNoStreamOfThePool) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor mine = full({4096}, group.rank(), {.dtype = f32, .device = group.device()});
    Tensor joined = zeros({8192}, {.dtype = f32, .device = group.device()});
    group.register_memory(joined);
    synchronize(group.device());
    const StreamGuard guard(Stream::from_pool(group.device(), StreamPriority::high));
    std::vector<NativeStream> captured;
    if (group.rank() == 0) {
      for (int i = 0; i < 32; ++i) {
        captured.push_back(Stream::from_pool(group.device()).native());
        driver().begin_capture(captured.back(), CaptureMode::relaxed);
      }
    }
    group.all_gather(joined, mine);
    for (const NativeStream stream : captured) {
      driver().destroy_graph(driver().end_capture(stream));
    }
    require(joined.sum().item<float>() == 4096, "the gathered values are wrong");
  });
}

class EveryMismatch : public RegisteredMemoryTest,
                      public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryMismatch, NamesWhatIsRegisteredDifferently) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  const bool copies = std::string(GetParam()) == "copy";
  on_ranks(std::min(device_count(), 4), [&](CollectiveSuite& suite, Communicator& group) {
    const bool odd = group.rank() == group.size() - 1;
    Tensor memory = full({1000}, group.rank(), {.dtype = f32, .device = group.device()});
    group.register_memory(memory);
    Tensor other = full({64}, group.rank(), {.dtype = f32, .device = group.device()});
    Tensor first = memory.narrow(0, 0, 64);
    Tensor later = memory.narrow(0, 128, 64);
    struct Case {
      Tensor& odd;
      const char* text;
    };
    for (const Case& one : {Case{other, "called all_reduce sum f32[64]"},
                            Case{later, "called all_reduce sum f32[64] registered 1+512"}}) {
      const std::string text =
          text_of<InvalidArgument>([&] { group.all_reduce(odd ? one.odd : first).synchronize(); });
      require_part(text, "called all_reduce sum f32[64] registered 1+0");
      require_part(text, one.text);
      // Results of copies may have been overwritten, nothing else.
      for (const Tensor& tensor :
           {memory.narrow(0, 64, 64), memory.narrow(0, 192, 808), other, copies ? other : memory}) {
        require(
            tensor.amin().item<int>() == group.rank() && tensor.amax().item<int>() == group.rank(),
            "a call that failed changed another tensor: " + text);
      }
      // Others may still copy from it.
      synchronize(group.device());
      group.host_barrier();
      memory.fill_(group.rank());
      suite.all(i32, 100);
    }
    // Another operation altogether, and the one after it.
    require_part(text_of<InvalidArgument>(
                     [&] { (odd ? group.barrier() : group.all_reduce(first)).synchronize(); }),
                 "called all_reduce sum f32[64] registered 1+0");
    synchronize(group.device());
    group.host_barrier();
    memory.fill_(group.rank());
    group.all_reduce(first, ReduceOp::max);
    require(first.amin().item<int>() == group.size() - 1, "the group does not go on");
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EveryMismatch, ::testing::Values("zero_copy", "copy"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(RegisteredMemoryTest, CopiesOfCallsThatDifferStayWithinTheirOutputs) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite&, Communicator& group) {
    constexpr std::int64_t kShare = 32;
    const bool odd = group.rank() == group.size() - 1;
    const std::int64_t whole = kShare * group.size();
    const Tensor memory = full({4 * whole}, group.rank(), {.dtype = i32, .device = group.device()});
    group.register_memory(memory);
    const Tensor input = full({whole}, group.rank(), {.dtype = i32, .device = group.device()});
    for (const bool all_to_all : {false, true}) {
      const auto gather = [&](std::int64_t first) {
        Tensor output = memory.narrow(0, first, whole);
        return all_to_all ? group.all_to_all(output, input)
                          : group.all_gather(output, input.narrow(0, 0, kShare));
      };
      const std::string text =
          text_of<InvalidArgument>([&] { gather(odd ? 2 * whole : 0).synchronize(); });
      const std::string called = fmt::format("called {} i32[{}] registered 1+",
                                             all_to_all ? "all_to_all" : "all_gather", kShare);
      require_part(text, called + "0");
      require_part(text, called + std::to_string(2 * whole * 4));
      synchronize(group.device());
      group.host_barrier();
      for (const Tensor& tensor :
           {memory.narrow(0, whole, whole), memory.narrow(0, 3 * whole, whole)}) {
        require(
            tensor.amin().item<int>() == group.rank() && tensor.amax().item<int>() == group.rank(),
            "a call that failed changed another tensor: " + text);
      }
      gather(whole);
      const Tensor rows = memory.narrow(0, whole, whole).view({group.size(), kShare});
      for (int rank = 0; rank < group.size(); ++rank) {
        require(rows[rank].amin().item<int>() == rank && rows[rank].amax().item<int>() == rank,
                "the group does not go on");
      }
      memory.fill_(group.rank());
    }
  });
}

TEST_F(RegisteredMemoryTest, NothingIsRegisteredUnlessEveryRankCan) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(std::min(device_count(), 4), [](CollectiveSuite& suite, Communicator& group) {
    const bool odd = group.rank() == group.size() - 1;
    const Tensor memory = arena(group, 1 << 20);
    const Tensor shorter = arena(group, 1 << 19);
    require_part(text_of<InvalidArgument>([&] { group.register_memory(odd ? shorter : memory); }),
                 "expected memory of one size on all ranks");
    const Tensor foreign =
        from_blob(memory.data(), {1 << 20}, {.dtype = u8, .device = group.device()});
    if (odd) {
      require_part(text_of<NotSupported>([&] { group.register_memory(foreign); }),
                   "expected memory of a device allocator, but got foreign or imported memory");
    } else {
      require_part(text_of<InvalidArgument>([&] { group.register_memory(memory); }),
                   "rank " + std::to_string(group.size() - 1) + " could not share its memory");
    }
    require_part(text_of<InvalidArgument>([&] { group.deregister_memory(memory); }),
                 "expected registered memory");
    group.register_memory(memory);
    require_part(text_of<InvalidArgument>([&] { group.register_memory(memory); }),
                 "not registered yet");
    suite.use_arena(memory);
    suite.all(f32, 1000);
  });
}

TEST_F(RegisteredMemoryTest, GroupsThatOpenNothingRefuseTheSameCalls) {
  const auto use = [](Communicator& group) {
    const Tensor memory = arena(group, 1 << 20);
    group.register_memory(memory);
    require_part(text_of<InvalidArgument>([&] { group.register_memory(memory); }),
                 "not registered yet");
    group.deregister_memory(memory);
    require_part(text_of<InvalidArgument>([&] { group.deregister_memory(memory); }),
                 "expected registered memory");
  };
  use(Communicator::local(devices(1)).front());
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_P2P", "off", 1);
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& group) {
    use(group);
    const Tensor other = arena(group, 100 + group.rank());
    require_part(text_of<InvalidArgument>([&] { group.register_memory(other); }),
                 "expected memory of one size on all ranks");
    suite.all_reduce(ReduceOp::sum, f32, 1000);
  });
  unsetenv("GANTRY_P2P");
}

TEST_F(RegisteredMemoryTest, NothingIsRegisteredUnlessEveryRankCanOpenIt) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 4);
  std::atomic<int> failed = 0;
  std::atomic<int> told = 0;
  testing::FaultDriver faults;
  on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
    const Tensor memory = arena(group, 1 << 20);
    group.host_barrier();
    if (group.rank() == 0) faults.fail_on("wait_event", 1);
    group.host_barrier();
    {
      // Who opens the memory of a busy stream waits for an event.
      const testing::StreamHold hold(Stream::current(group.device()));
      try {
        group.register_memory(memory);
      } catch (const CudaError&) {
        ++failed;
      } catch (const InvalidArgument& error) {
        require_part(error.what(), "could not open the others' memory");
        ++told;
      }
    }
    require_part(text_of<InvalidArgument>([&] { group.deregister_memory(memory); }),
                 "expected registered memory");
    group.register_memory(memory);
    suite.use_arena(memory);
    suite.all(f32, 1000);
    synchronize(group.device());
  });
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(told, ranks - 1);
}

TEST_F(RegisteredMemoryTest, MemoryGoesBackWhenItIsGivenUp) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 4);
  const std::size_t before = memory::allocated(Device::cuda(0));
  on_ranks(ranks, [](CollectiveSuite& suite, Communicator& group) {
    for (int round = 0; round < 3; ++round) {
      const Tensor memory = arena(group);
      group.register_memory(memory);
      suite.use_arena(memory);
      suite.all_reduce(ReduceOp::sum, f32, 100'000);
      suite.use_arena(Tensor());
      group.deregister_memory(memory);
      suite.all_reduce(ReduceOp::sum, f32, 100'000);
    }
    const Tensor kept = arena(group);
    group.register_memory(kept);
  });
  for (int device = 0; device < ranks; ++device) synchronize(Device::cuda(device));
  memory::ipc_collect();
  EXPECT_EQ(memory::allocated(Device::cuda(0)), before);
  for (int device = 0; device < ranks; ++device) {
    EXPECT_EQ(memory::ipc_stats(Device::cuda(device)).limbo_blocks, 0U);
    EXPECT_EQ(memory::ipc_stats(Device::cuda(device)).imports, 0U);
  }
}

TEST_F(RegisteredMemoryTest, AnAbortWakesEveryPhase) {
  GANTRY_REQUIRE_DEVICES(3);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  std::vector<Communicator> group = Communicator::local(devices(3));
  testing::rank_threads(3, [&](int rank) {
    Communicator& mine = group[static_cast<std::size_t>(rank)];
    const DeviceGuard guard(mine.device());
    Tensor tensor = ones({100'000}, {.device = mine.device()});
    mine.register_memory(tensor);
    if (rank == 2) return mine.abort();
    EXPECT_THROW(
        {
          for (int i = 0; i < 1000; ++i) mine.all_reduce(tensor, ReduceOp::max).synchronize();
        },
        PeerLostError);
  });
}

}  // namespace
}  // namespace gantry
