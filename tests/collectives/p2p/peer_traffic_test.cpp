// Counts of transfers over peer memory, compared with what simulated kernels and copies move.
#include "collectives/p2p/traffic.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/hierarchical/traffic.hpp"
#include "collectives/selection/selector.hpp"
#include "job/flight_file.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/p2p/move_counter.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using testing::MoveCounter;
using testing::TrafficTable;

constexpr std::array kKinds{CollectiveKind::all_reduce,     CollectiveKind::reduce,
                            CollectiveKind::broadcast,      CollectiveKind::all_gather,
                            CollectiveKind::reduce_scatter, CollectiveKind::gather,
                            CollectiveKind::scatter,        CollectiveKind::all_to_all};

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast ||
         kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}
bool has_large_input(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::all_to_all;
}
bool has_large_output(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::gather ||
         kind == CollectiveKind::all_to_all;
}

// A group in this process, and the counters of one call.
class PeerTrafficTest : public testing::DeviceTest {
 protected:
  void start(int ranks) {
    std::vector<Device> devices;
    for (int i = 0; i < ranks; ++i) devices.push_back(Device::cuda(i));
    group_ = Communicator::local(devices);
    ranks_ = ranks;
    selector_ = Selector::load(ranks, "Simulated GPU");
  }
  void TearDown() override {
    inputs_.clear();
    outputs_.clear();
    group_.clear();
    DeviceTest::TearDown();
  }

  // The begins of arrays that last for the test: fresh memory takes long.
  std::vector<Tensor> arrays(std::vector<Tensor>& kept, std::int64_t count) const {
    if (kept.empty() || kept.front().numel() < count) {
      kept.clear();
      for (const Communicator& rank : group_) {
        kept.push_back(zeros({count}, {.dtype = DType::f32, .device = rank.device()}));
      }
    }
    std::vector<Tensor> result;
    for (const Tensor& array : kept) result.push_back(array.narrow(0, 0, count));
    return result;
  }

  // Runs one call on all ranks, and compares it with the model.
  void check(CollectiveKind kind, Algorithm algorithm, std::int64_t count, int blocks = 0,
             bool registers = false) {
    const int root = has_root(kind) ? ranks_ - 1 : -1;
    Descriptor what{.count = count, .root = root, .kind = kind, .dtype = DType::f32};
    if (kind == CollectiveKind::barrier) what = {.kind = kind};
    what.algorithm = algorithm;
    if (registers) what.window_offset = flight::pack_window_offset(1, 0);
    ResolvedCall call({.what = what}, ranks_);
    call.choice = selector_.choose(what, call.message_bytes);
    if (algorithm != Algorithm::automatic && call.choice.algorithm != algorithm) return;
    if (blocks != 0) call.choice.blocks = static_cast<std::uint16_t>(blocks);

    const bool is_in_place = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
                             kind == CollectiveKind::broadcast;
    const std::vector<Tensor> inputs =
        arrays(inputs_, has_large_input(kind) ? count * ranks_ : count);
    const std::vector<Tensor> outputs =
        is_in_place ? inputs : arrays(outputs_, has_large_output(kind) ? count * ranks_ : count);
    const auto& shared = kind == CollectiveKind::reduce_scatter ? inputs : outputs;
    if (registers) on_all([&](std::size_t r) { group_[r].register_memory(shared[r]); });
    synchronize_all();
    counter_.reset();
    CollectiveOptions options;
    if (algorithm != Algorithm::automatic) options.algorithm = name(algorithm);
    options.blocks = blocks;
    for (std::size_t r = 0; r < group_.size(); ++r) {
      run(kind, group_[r], outputs[r], inputs[r], root, options);
    }
    synchronize_all();

    TrafficTable model;
    const bool opens = algorithm == Algorithm::automatic;
    const Steps steps = count_over_peers(call, ranks_, opens,
                                         [&](const Transfer& transfer) { model.add(transfer); });
    const std::string text = fmt::format("{} by {}, {} blocks, {} ranks", what.str(),
                                         name(call.choice.algorithm), call.choice.blocks, ranks_);
    EXPECT_EQ(model.difference(counter_.moved), "") << text;
    EXPECT_EQ(steps.peers, counter_.steps()) << text;
    EXPECT_EQ(model.empty(), kind == CollectiveKind::barrier) << text;
    ++checked_;
    if (registers) on_all([&](std::size_t r) { group_[r].deregister_memory(shared[r]); });
  }

  // Runs one message from every even rank, and compares it with the model.
  void check_messages(std::int64_t count) {
    const std::vector<Tensor> tensors = arrays(inputs_, count);
    synchronize_all();
    counter_.reset();
    for (int r = 0; r + 1 < ranks_; r += 2) {
      const auto at = static_cast<std::size_t>(r);
      group_[at].send(tensors[at], r + 1);
      group_[at + 1].recv(tensors[at + 1], r);
    }
    synchronize_all();
    TrafficTable model;
    Steps steps;
    const Descriptor what{.count = count, .kind = CollectiveKind::send, .dtype = DType::f32};
    for (int r = 0; r + 1 < ranks_; r += 2) {
      steps = count_message_over_peers(what, r, r + 1, ranks_, /*opens=*/true,
                                       [&](const Transfer& moved) { model.add(moved); });
    }
    EXPECT_EQ(model.difference(counter_.moved), "") << count << " elements, " << ranks_ << " ranks";
    // A sender also waits for slots that earlier messages fill.
    EXPECT_EQ(steps.peers, counter_.steps(1, 2)) << count;
  }

  static void run(CollectiveKind kind, const Communicator& rank, const Tensor& out,
                  const Tensor& in, int root, const CollectiveOptions& options) {
    const bool is_root = rank.rank() == root;
    switch (kind) {
      case CollectiveKind::barrier:
        rank.barrier(options);
        return;
      case CollectiveKind::all_reduce:
        rank.all_reduce(out, ReduceOp::sum, options);
        return;
      case CollectiveKind::reduce:
        rank.reduce(out, root, ReduceOp::sum, options);
        return;
      case CollectiveKind::broadcast:
        rank.broadcast(out, root, options);
        return;
      case CollectiveKind::all_gather:
        rank.all_gather(out, in, options);
        return;
      case CollectiveKind::reduce_scatter:
        rank.reduce_scatter(out, in, ReduceOp::sum, options);
        return;
      case CollectiveKind::gather:
        rank.gather(is_root ? out : Tensor(), in, root, options);
        return;
      case CollectiveKind::scatter:
        rank.scatter(out, is_root ? in : Tensor(), root, options);
        return;
      case CollectiveKind::all_to_all:
        rank.all_to_all(out, in, options);
        return;
      case CollectiveKind::send:
      case CollectiveKind::recv:
        FAIL() << "messages have a test of their own";
    }
  }

  template <class F>
  void on_all(F f) {
    testing::rank_threads(ranks_, [&](int rank) { f(static_cast<std::size_t>(rank)); });
  }
  void synchronize_all() const {
    for (const Communicator& rank : group_) synchronize(rank.device());
  }

  MoveCounter counter_;
  std::vector<Communicator> group_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  int ranks_ = 0;
  Selector selector_;
  int checked_ = 0;
};

class PeerTrafficOf : public PeerTrafficTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    PeerTrafficTest::SetUp();
    GANTRY_REQUIRE_DEVICES(GetParam());
    start(GetParam());
  }
};

TEST_P(PeerTrafficOf, EveryAlgorithmMovesWhatTheModelSays) {
  for (const Algorithm algorithm : {Algorithm::ll, Algorithm::ll128, Algorithm::ll128_two_shot,
                                    Algorithm::one_shot, Algorithm::two_shot}) {
    for (const CollectiveKind kind : kKinds) {
      check(kind, algorithm, 1021);
      if (ranks_ > 8) continue;
      check(kind, algorithm, 1);
      check(kind, algorithm, 517, /*blocks=*/3);
    }
  }
  check(CollectiveKind::barrier, Algorithm::automatic, 0);
  EXPECT_GE(checked_, 3 * 8);
}

TEST_P(PeerTrafficOf, OperationsOfManyChunksMoveWhatTheModelSays) {
  // More than one buffer of staging holds.
  const std::int64_t count = (std::int64_t{5} << 20) / ranks_ + 77;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::all_gather}) {
      if (ranks_ > 16 && kind == CollectiveKind::all_gather) continue;
      check(kind, algorithm, count, /*blocks=*/2);
    }
  }
}

TEST_P(PeerTrafficOf, OpenArraysMoveWhatTheModelSays) {
  const std::int64_t count = (std::int64_t{8} << 20) / 4 / ranks_;
  for (const CollectiveKind kind : kKinds) {
    const bool is_array = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
                          kind == CollectiveKind::broadcast;
    // A reduction of many large arrays takes long here.
    const std::int64_t of_array = ranks_ > 8 ? (std::int64_t{2} << 20) / 4 : count * ranks_;
    check(kind, Algorithm::automatic, is_array ? of_array : count);
  }
}

TEST_P(PeerTrafficOf, RegisteredTensorsMoveWhatTheModelSays) {
  for (const Algorithm algorithm : {Algorithm::zero_copy, Algorithm::copy}) {
    for (const CollectiveKind kind : kKinds) {
      for (const std::int64_t count : {4, 40'004}) {
        check(kind, algorithm, count, 0, /*registers=*/true);
      }
    }
  }
  EXPECT_GE(checked_, 6 * 2);
}

TEST_P(PeerTrafficOf, MessagesMoveWhatTheModelSays) {
  for (const std::int64_t count : {1, 1021, 300'007}) check_messages(count);
  if (ranks_ <= 4) check_messages(std::int64_t{5} << 20);  // open
}

// Machines of several ranks each.
struct Shape {
  int nodes;
  int width;
};

class NodeTrafficTest : public testing::DeviceTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(NodeTrafficTest, RanksOfEachMachineMoveWhatTheModelSays) {
  const int width = GetParam().width;
  const int size = GetParam().nodes * width;
  GANTRY_REQUIRE_DEVICES(size);
  std::vector<std::string> machines;
  for (int rank = 0; rank < size; ++rank) machines.push_back(std::to_string(rank / width));
  std::vector<Descriptor> calls;
  for (const CollectiveKind kind : kKinds) {
    // Smaller ones go between the hosts, and arrays of larger ones would be opened.
    for (const std::int64_t count : {20'011, 60'000}) {
      const std::int64_t of_kind = has_large_input(kind) || has_large_output(kind) ? 17'000 : count;
      calls.push_back({.count = of_kind,
                       .root = has_root(kind) ? size - 3 : -1,
                       .kind = kind,
                       .dtype = DType::f32,
                       .reproducible = count == 60'000 ? std::uint8_t{1} : std::uint8_t{0}});
    }
  }
  MoveCounter counter(width);
  std::vector<TrafficTable> moved(calls.size());
  std::barrier together(size);
  testing::host_ranks(size, [&](testing::HostRank& self) {
    self.transport.reset();
    const auto layered =
        make_hierarchical_transport({self.rank, self.size, self.device}, *self.bootstrap, machines,
                                    "Simulated GPU", std::chrono::seconds(60), "node-traffic");
    ASSERT_EQ(layered->name(), "hierarchical");
    const Tensor in = zeros({17'000 * size}, {.dtype = DType::f32, .device = self.device});
    const Tensor out = in.clone();
    self.stream.synchronize();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      together.arrive_and_wait();
      if (self.rank == 0) counter.reset();
      together.arrive_and_wait();
      Descriptor what = calls[i];
      what.call = static_cast<std::int64_t>(i) + 1;
      layered->run(ResolvedCall({.what = what, .in = in.data(), .out = out.data()}, size),
                   self.stream);
      self.stream.synchronize();
      together.arrive_and_wait();
      if (self.rank == 0) moved[i].add(counter.moved);
    }
  });
  const NodeMap map(machines);
  Selector selector = Selector::load(width, "Simulated GPU");
  selector.keep_to_p2p();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    TrafficTable model;
    const NodeCounter in_node = [&](const ResolvedCall& part, int ranks,
                                    const TransferVisitor& visit) {
      ResolvedCall call = part;
      call.choice = selector.choose(call.what, call.message_bytes);
      return count_over_peers(call, ranks, /*opens=*/false, visit);
    };
    count_by_levels(calls[i], map, in_node, [&](const Transfer& transfer) {
      if (transfer.way == Way::peers) model.add(transfer);
    });
    EXPECT_EQ(model.difference(moved[i]), "") << calls[i].str();
    EXPECT_FALSE(model.empty()) << calls[i].str();
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NodeTrafficTest,
                         ::testing::Values(Shape{2, 2}, Shape{2, 4}, Shape{4, 4}, Shape{4, 8}),
                         [](const auto& shape) {
                           return fmt::format("{}x{}", shape.param.nodes, shape.param.width);
                         });

INSTANTIATE_TEST_SUITE_P(Ranks, PeerTrafficOf, ::testing::Values(2, 3, 4, 8, 16, 32));

}  // namespace
}  // namespace gantry
