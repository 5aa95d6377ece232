// Large operations of ranks of one process, which use each other's arrays in place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/collectives/communicator/captured_operations.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/closed_memory.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::CapturedOperations;
using testing::ClosedMemory;
using testing::CollectiveSuite;
using testing::kIsSanitized;

// Elements of one byte: a message of them is large.
constexpr std::int64_t kLarge = (std::int64_t{2} << 20) + (kIsSanitized ? 0 : 4096);

class OpenArraysTest : public testing::LocalGroupTest {
 protected:
  // Every operation on messages of about `bytes`, whose addresses are odd by `skew`.
  static void all_operations(CollectiveSuite& suite, int ranks, std::int64_t bytes,
                             std::int64_t skew) {
    for (const DType dtype : {f32, bf16}) {
      const auto count = bytes / static_cast<std::int64_t>(element_size(dtype));
      suite.all_reduce(ReduceOp::sum, dtype, count, skew);
      suite.reduce(ReduceOp::max, dtype, count, ranks - 1, skew);
      suite.reductions_apart(ReduceOp::sum, dtype, count, 0, skew);
      suite.reduce_scatter(ReduceOp::sum, dtype, count / ranks, skew);
      suite.into_slices(ReduceOp::sum, dtype, count / ranks, ranks - 1, skew);
    }
    for (const DType dtype : {u8}) {
      const auto count = bytes / static_cast<std::int64_t>(element_size(dtype));
      suite.broadcast(dtype, count, ranks - 1, skew);
      suite.all_gather(dtype, count / ranks, skew);
      suite.gather(dtype, count / ranks, ranks - 1, skew);
      suite.scatter(dtype, count / ranks, ranks - 1, skew);
      suite.all_to_all(dtype, count / ranks, skew);
    }
  }
};

TEST_F(OpenArraysTest, EveryOperationGivesTheDefinedBits) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {2, 3, 4}) {
    if (ranks > device_count()) continue;
    on_ranks(ranks, [&](CollectiveSuite& suite, Communicator&) {
      // Slices of whole words, and slices that end inside of one.
      for (const std::int64_t bytes : {kLarge, kLarge + 48 * 7 + 4}) {
        all_operations(suite, ranks, bytes, 0);
      }
    });
  }
}

TEST_F(OpenArraysTest, OneRankWhoseArraysAreNotAligned) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 3);
  on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
    all_operations(suite, ranks, kLarge, group.rank() == 1 ? 1 : 0);
  });
}

// Memory that other devices cannot access, on one rank.
TEST_F(OpenArraysTest, OneRankWhoseArraysAreClosed) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 3);
  for (int rank = 0; rank < ranks; ++rank) {
    if (!driver().supports_virtual_memory(rank)) GTEST_SKIP() << "needs virtual memory";
  }
  const std::int64_t count = kLarge / 4;
  on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
    const Stream stream = Stream::current(group.device());
    std::optional<ClosedMemory> closed;
    if (group.rank() == 1) closed.emplace(group.device());
    const auto place = [&](std::int64_t elements) {
      if (!closed) return empty({elements}, {.dtype = i32, .device = group.device()});
      void* data = closed->allocate(stream, static_cast<std::size_t>(4 * elements), 512).data;
      return from_blob(data, {elements}, {.dtype = i32, .device = group.device()});
    };
    const Tensor sum = place(count);
    const Tensor all = place(count * ranks);
    for (int round = 0; round < 3; ++round) {
      sum.fill_(group.rank() + round);
      (void)group.all_reduce(sum);
      const std::int64_t expected = ranks * (ranks - 1) / 2 + ranks * round;
      if (!(sum == expected).all().item<bool>()) throw std::runtime_error("wrong sum");
      (void)group.all_gather(all, sum + group.rank());
      for (int peer = 0; peer < ranks; ++peer) {
        const Tensor part = all.narrow(0, peer * count, count);
        if (!(part == expected + peer).all().item<bool>()) throw std::runtime_error("wrong part");
      }
    }
    stream.synchronize();
  });
}

TEST_F(OpenArraysTest, GraphsFindTheArraysOfEachReplay) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(std::min(device_count(), 3), [](CollectiveSuite&, Communicator& group) {
    const CapturedOperations operations(group, kLarge / 4);
    Graph graph;
    {
      GraphCapture capture(graph);
      operations.run();
      capture.end();
    }
    group.host_barrier();  // no rank synchronizes while another one captures
    for (int round = 1; round < 4; ++round) {
      operations.set(round);
      if (round == 2) {  // calls between replays
        operations.run();
        operations.set(round);
      }
      graph.replay();
      operations.check(round);
    }
    synchronize(group.device());
    group.host_barrier();
  });
}

// Messages whose receivers fetch them, between others and in order.
TEST_F(OpenArraysTest, LargeMessages) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 3);
  const std::int64_t large = (std::int64_t{16} << 20) / 4 + 3;
  for (const bool is_open : {true, false}) {
    setenv("GANTRY_COLL_OPEN", is_open ? "on" : "off", 1);
    on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
      const int next = (group.rank() + 1) % ranks;
      const int last = (group.rank() + ranks - 1) % ranks;
      const auto make = [&](std::int64_t count, int value) {
        return full({count}, value, {.dtype = i32, .device = group.device()});
      };
      const auto require = [](const Tensor& tensor, int value, const char* what) {
        if (!(tensor == value).all().item<bool>()) throw std::runtime_error(what);
      };
      const auto rank_values = [](int rank, int round) { return 100 * round + rank; };
      for (int round = 0; round < 3; ++round) {
        const Tensor in = make(large, rank_values(group.rank(), round));
        const Tensor out = make(large, -1);
        (void)group.send_recv(in, next, out, last);
        require(out, rank_values(last, round), "send_recv");
        // One way, and a small one behind it.
        const Tensor one = make(large, rank_values(group.rank(), round + 3));
        const Tensor small = make(5, rank_values(group.rank(), round + 6));
        if (group.rank() == 0) {
          (void)group.send(one, 1);
          (void)group.send(small, 1);
          one.fill_(-2);  // after the receiver has it
        } else if (group.rank() == 1) {
          (void)group.recv(one, 0);
          (void)group.recv(small, 0);
          require(one, rank_values(0, round + 3), "recv");
          require(small, rank_values(0, round + 6), "small recv");
        }
        // Several to one peer, in order, in both directions.
        const std::vector<std::int64_t> counts{7, large, large + 1, 40'000};
        std::vector<Tensor> sent;
        std::vector<Tensor> got;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          sent.push_back(make(counts[i], rank_values(group.rank(), static_cast<int>(i))));
          got.push_back(make(counts[i], -1));
        }
        MessageGroup messages = group.group();
        for (std::size_t i = 0; i < counts.size(); ++i) {
          (void)group.send(sent[i], next);
          (void)group.recv(got[i], last);
        }
        (void)messages.end();
        for (const Tensor& tensor : sent) tensor.fill_(-2);  // after the receivers have them
        for (std::size_t i = 0; i < counts.size(); ++i) {
          require(got[i], rank_values(last, static_cast<int>(i)), "group");
        }
      }
    });
  }
  unsetenv("GANTRY_COLL_OPEN");
}

TEST_F(OpenArraysTest, LargeMessagesThatDifferAreAnError) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::int64_t large = (std::int64_t{16} << 20) / 4;
  for (const bool in_group : {false, true}) {
    std::vector<Communicator> group = Communicator::local(devices(2));
    testing::rank_threads(2, [&](int rank) {
      const Communicator& mine = group[static_cast<std::size_t>(rank)];
      const DeviceGuard guard(mine.device());
      const Tensor data = full({large + rank}, rank, {.dtype = i32, .device = mine.device()});
      const Tensor other = empty_like(data);
      synchronize(mine.device());
      try {
        if (in_group) {
          (void)mine.send_recv(data, 1 - rank, other, 1 - rank);
        } else if (rank == 0) {
          (void)mine.send(data, 1);
        } else {
          (void)mine.recv(data, 0);
        }
        synchronize(mine.device());
      } catch (const CollectiveMismatch&) {
        return;
      }
      throw std::runtime_error("nothing was thrown");
    });
  }
}

TEST_F(OpenArraysTest, TheSettingKeepsThemClosed) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_OPEN", "off", 1);
  on_ranks(2, [](CollectiveSuite& suite, Communicator&) {
    suite.all_reduce(ReduceOp::sum, f32, kLarge / 4);
    suite.all_gather(f32, kLarge / 8);
  });
  unsetenv("GANTRY_COLL_OPEN");
}

// A rank's kernel that begins after the group is broken touches no array: their owners may have
// freed them.
TEST_F(OpenArraysTest, ALateRankLeavesTheArraysOfABrokenGroupAlone) {
  GANTRY_REQUIRE_DEVICES(3);
  std::vector<Communicator> group = Communicator::local(devices(3));
  const std::int64_t count = kLarge / 4;
  std::vector<Tensor> arrays;
  std::optional<testing::StreamHold> hold;
  for (int rank = 0; rank < 3; ++rank) {
    const DeviceGuard guard(Device::cuda(rank));
    arrays.push_back(full({count}, rank + 1, {.dtype = i32, .device = Device::cuda(rank)}));
    synchronize(Device::cuda(rank));
    if (rank == 2) hold.emplace(Stream::current(Device::cuda(rank)));
  }
  testing::rank_threads(3, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const DeviceGuard guard(Device::cuda(rank));
    (void)group[at].all_reduce(arrays[at]);
  });
  group[0].abort();
  for (int rank = 0; rank < 2; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const DeviceGuard guard(Device::cuda(rank));
    EXPECT_THROW(synchronize(Device::cuda(rank)), PeerLostError);
    arrays[at].fill_(-1);  // the memory is used anew
    synchronize(Device::cuda(rank));
  }
  hold->release();
  EXPECT_THROW(synchronize(Device::cuda(2)), PeerLostError);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE((arrays[rank] == -1).all().item<bool>()) << "rank " << rank;
  }
}

// A receiver that comes after the group is broken fetches nothing.
TEST_F(OpenArraysTest, ALateReceiverLeavesTheSendersDataAlone) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::int64_t large = (std::int64_t{16} << 20) / 4;
  std::vector<Communicator> group = Communicator::local(devices(2));
  std::vector<Tensor> data;
  std::optional<testing::StreamHold> hold;
  for (int rank = 0; rank < 2; ++rank) {
    const Device device = Device::cuda(rank);
    const DeviceGuard guard(device);
    data.push_back(full({large}, rank + 1, {.dtype = i32, .device = device}));
    synchronize(device);
    if (rank == 1) hold.emplace(Stream::current(device));
    if (rank == 0) {
      (void)group[0].send(data[0], 1);
    } else {
      (void)group[1].recv(data[1], 0);
    }
  }
  group[0].abort();
  {
    const DeviceGuard guard(Device::cuda(0));
    EXPECT_THROW(synchronize(Device::cuda(0)), PeerLostError);
  }
  hold->release();
  const DeviceGuard guard(Device::cuda(1));
  EXPECT_THROW(synchronize(Device::cuda(1)), PeerLostError);
  synchronize(Device::cuda(1));
  EXPECT_TRUE((data[1] == 2).all().item<bool>());
}

}  // namespace
}  // namespace gantry
