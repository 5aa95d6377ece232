// Programs under CUDA_LAUNCH_BLOCKING=1, which the test is registered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/collectives/communicator/captured_operations.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using ::testing::Each;

class LaunchBlockingTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_STREQ(std::getenv("CUDA_LAUNCH_BLOCKING"), "1");
    for (int i = 0; i < device_count(); ++i) devices_.push_back(Device::cuda(i));
  }
  [[nodiscard]] int count() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] std::vector<Tensor> one_per_device(std::int64_t elements) const {
    std::vector<Tensor> tensors;
    for (int i = 0; i < count(); ++i) {
      tensors.push_back(full({elements}, static_cast<float>(i + 1), devices_[index(i)]));
    }
    return tensors;
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  template <class List>
  static int count_of(const List& list) {
    return static_cast<int>(list.size());
  }
  [[nodiscard]] float sum() const { return static_cast<float>(count() * (count() + 1)) / 2; }

  std::vector<Device> devices_;
};

TEST_F(LaunchBlockingTest, ABadIndexIsAnErrorOfItsCall) {
  const Tensor rows = arange(0, 10, 1, devices_[0]);
  const Tensor bad = arange(99, 102, 1, devices_[0]);
  EXPECT_THROW(static_cast<void>(rows.index_select(0, bad)), IndexError);
  // The error was told: what follows works.
  EXPECT_EQ(rows.sum().item<std::int64_t>(), 45);
  synchronize(devices_[0]);
}

// Each rank's kernels wait for kernels of the ranks that this thread serves later.
TEST_F(LaunchBlockingTest, OneThreadServesAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  for (const std::int64_t elements : {10, 1'000'000}) {
    std::vector<Tensor> tensors = one_per_device(elements);
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < count(); ++rank) {
        Tensor& mine = tensors[index(rank)];
        group[index(rank)].all_reduce(mine);
        mine.div_(static_cast<double>(sum()));
        mine.mul_(static_cast<double>(rank + 1));
      }
    }
    for (int rank = 0; rank < count(); ++rank) {
      EXPECT_THAT(tensors[index(rank)].to_vector<float>(), Each(static_cast<float>(rank + 1)));
    }
  }
  Tensor sent = ones({1'000'000}, devices_[0]);
  Tensor received = zeros({1'000'000}, devices_[1]);
  group[0].send(sent, 1);
  sent.add_(1.0);
  group[1].recv(received, 0);
  EXPECT_THAT(received.to_vector<float>(), Each(1.0F));
}

// Every kernel of every operation waits for kernels of ranks that are not launched yet.
TEST_F(LaunchBlockingTest, OneThreadServesEveryOperation) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm :
       {"", "ll", "ll128", "ll128_two_shot", "one_shot", "two_shot", "zero_copy", "host"}) {
    SCOPED_TRACE(algorithm);
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    std::vector<Communicator> group = Communicator::local(devices_);
    unsetenv("GANTRY_COLL_ALGO");
    const bool is_host = std::string(algorithm) == "host";
    for (const std::int64_t count : {10, 50'000}) {
      std::vector<testing::CapturedOperations> ranks;
      for (const Communicator& rank : group) ranks.emplace_back(rank, count);
      const auto serve = [&](const auto& work) {
        // Calls over links wait for the other ranks' hosts.
        if (is_host) {
          testing::rank_threads(count_of(ranks), [&](int rank) { work(index(rank)); });
        } else {
          for (std::size_t rank = 0; rank < ranks.size(); ++rank) work(rank);
        }
      };
      for (int round = 0; round < 2; ++round) {
        for (const auto& rank : ranks) rank.set(round);
        serve([&](std::size_t rank) { ranks[rank].run(); });
        for (const auto& rank : ranks) rank.check(round);
      }
      if (is_host) continue;
      std::vector<Graph> graphs(ranks.size());
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        synchronize(devices_[rank]);
        const GraphCapture capture(graphs[rank], {.stream = Stream::from_pool(devices_[rank])});
        ranks[rank].run();
      }
      for (int round = 2; round < 4; ++round) {
        for (const auto& rank : ranks) rank.set(round);
        for (Graph& graph : graphs) graph.replay();
        for (const auto& rank : ranks) rank.check(round);
      }
    }
  }
}

// As above, for messages of a group, captured and not.
TEST_F(LaunchBlockingTest, OneThreadServesGroupsOfMessages) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  const std::vector<Tensor> sent = one_per_device(100'000);
  std::vector<std::vector<Tensor>> received(devices_.size());
  const auto exchange = [&](std::size_t rank) {
    MessageGroup messages = group[rank].group();
    for (int peer = 0; peer < count(); ++peer) {
      if (index(peer) == rank) continue;
      group[rank].send(sent[rank], peer);
      group[rank].recv(received[rank][index(peer)], peer);
    }
    (void)messages.end();
  };
  const auto clear = [&] {
    for (std::size_t rank = 0; rank < received.size(); ++rank) {
      if (received[rank].empty()) received[rank].resize(received.size());
      for (Tensor& tensor : received[rank]) {
        if (!tensor.defined()) tensor = empty_like(sent[rank]);
        tensor.fill_(-1);
      }
    }
  };
  const auto expect_all = [&] {
    for (std::size_t rank = 0; rank < received.size(); ++rank) {
      for (std::size_t peer = 0; peer < received.size(); ++peer) {
        const auto value = peer == rank ? -1.0F : static_cast<float>(peer + 1);
        EXPECT_THAT(received[rank][peer].to_vector<float>(), Each(value)) << rank << ' ' << peer;
      }
    }
  };
  clear();
  for (std::size_t rank = 0; rank < group.size(); ++rank) exchange(rank);
  expect_all();
  std::vector<Graph> graphs(group.size());
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    synchronize(devices_[rank]);
    const GraphCapture capture(graphs[rank], {.stream = Stream::from_pool(devices_[rank])});
    exchange(rank);
  }
  clear();
  for (Graph& graph : graphs) graph.replay();
  expect_all();
}

TEST_F(LaunchBlockingTest, OneThreadServesSignalsOfWindows) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  const std::vector<Tensor> tensors = one_per_device(10);
  std::vector<Window> windows(group.size());
  testing::rank_threads(count(), [&](int rank) {
    windows[index(rank)] = group[index(rank)].window(tensors[index(rank)]);
  });
  const auto next = [&](int rank) { return (rank + 1) % count(); };
  const auto previous = [&](int rank) { return (rank + count() - 1) % count(); };
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < count(); ++rank) {
      const Window& window = windows[index(rank)];
      window.wait_signal(previous(rank), 1);
      window.put_signal(next(rank), 2);
      window.barrier();
    }
    for (int rank = 0; rank < count(); ++rank) {
      const Window& window = windows[index(rank)];
      const Stream other = Stream::from_pool(devices_[index(rank)]);
      window.put_signal(next(rank), other, 1);
      window.wait_signal(previous(rank), other, 2);
    }
    for (const Device device : devices_) synchronize(device);
  }
}

// A kernel of the program may wait for other ranks only through a window.
TEST_F(LaunchBlockingTest, LaunchesThatNameOtherMemoryBlock) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor other = ones({4}, devices_[0]);
  const Stream stream = Stream::current(devices_[0]);
  const auto fail = [](std::int64_t) { throw std::runtime_error("now"); };
  EXPECT_THROW(parallel_for(stream, 1, fail), std::runtime_error);
  std::vector<Communicator> group = Communicator::local(devices_);
  const std::vector<Tensor> tensors = one_per_device(10);
  {
    std::vector<Window> windows(group.size());
    testing::rank_threads(count(), [&](int rank) {
      windows[index(rank)] = group[index(rank)].window(tensors[index(rank)]);
    });
    EXPECT_THROW(parallel_for(stream, 1, uses(other), fail), std::runtime_error);
    // These may wait for a kernel that this thread launches next.
    for (const auto& launch_it : std::vector<std::function<void()>>{
             [&] { parallel_for(stream, 1, fail); },
             [&] { parallel_for(stream, 1, uses(windows[0], other), fail); },
             [&] {
               launch(stream, Grid(1), BlockSize(1), uses(tensors[0].narrow(0, 2, 3)),
                      [](Block&) { throw std::runtime_error("now"); });
             },
             [&] { parallel_for(stream, 1, uses(windows[0].peer(1)), fail); }}) {
      EXPECT_NO_THROW(launch_it());
      EXPECT_THROW(synchronize(devices_[0]), std::runtime_error);
    }
  }
  EXPECT_THROW(parallel_for(stream, 1, fail), std::runtime_error);
  EXPECT_THROW(parallel_for(stream, 1, uses(tensors[0]), fail), std::runtime_error);
}

TEST_F(LaunchBlockingTest, EachRankHasAThread) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  testing::rank_threads(count(), [&](int rank) {
    const DeviceGuard guard(devices_[index(rank)]);
    for (int round = 0; round < 5; ++round) {
      Tensor mine = full({100'000}, static_cast<float>(rank + 1), devices_[index(rank)]);
      group[index(rank)].all_reduce(mine);
      mine.add_(1.0);
      EXPECT_THAT(mine.to_vector<float>(), Each(sum() + 1));
    }
  });
}

TEST_F(LaunchBlockingTest, OneCallServesAllDevices) {
  for (const std::int64_t elements : {10, 3'000'000}) {
    std::vector<Tensor> tensors = one_per_device(elements);
    comm::all_reduce(tensors);
    for (const Tensor& tensor : tensors) EXPECT_THAT(tensor.to_vector<float>(), Each(sum()));
    const Tensor total = comm::reduce_add(tensors, devices_[0]);
    EXPECT_THAT(total.to_vector<float>(), Each(sum() * static_cast<float>(count())));
    for (const Tensor& copy : comm::broadcast(total, devices_)) {
      EXPECT_TRUE(equal(copy.cpu(), total.cpu()));
    }
  }
}

}  // namespace
}  // namespace gantry
