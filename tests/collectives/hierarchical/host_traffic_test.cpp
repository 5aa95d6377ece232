// Counts of transfers through the host and by levels, compared with what links move.
#include "collectives/host/traffic.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/hierarchical/traffic.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/host/transport.hpp"
#include "tests/collectives/host/memory_links.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using testing::Mailboxes;
using testing::MemoryLinks;
using testing::TrafficTable;

constexpr std::array kKinds{
    CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
    CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::gather,
    CollectiveKind::scatter,    CollectiveKind::all_to_all,     CollectiveKind::barrier};

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast ||
         kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}

Descriptor describe(CollectiveKind kind, std::int64_t count, int ranks) {
  if (kind == CollectiveKind::barrier) return {.kind = kind};
  return {
      .count = count, .root = has_root(kind) ? ranks - 1 : -1, .kind = kind, .dtype = DType::f32};
}

using MakeTransport =
    std::function<std::unique_ptr<Transport>(const Membership&, std::unique_ptr<HostTransport>)>;
using CountCall = std::function<Steps(const Descriptor&, const TransferVisitor&)>;

// A rank's transport and memory.
struct Rank {
  Rank(int rank, int size, std::int64_t count, const std::shared_ptr<Mailboxes>& boxes,
       const MakeTransport& make)
      : device(Device::cuda(rank % device_count())),
        stream(Stream::from_pool(device)),
        guard(stream),
        input(zeros({count}, {.dtype = DType::f32, .device = device})),
        output(zeros({count}, {.dtype = DType::f32, .device = device})) {
    const Membership me{rank, size, device};
    transport =
        make(me, std::make_unique<HostTransport>(me, std::make_shared<MemoryLinks>(boxes, rank)));
  }

  Device device;
  Stream stream;
  StreamGuard guard;
  Tensor input;
  Tensor output;
  std::unique_ptr<Transport> transport;
};

// Runs each call on all ranks, and compares it with its model.
void check(int ranks, const std::vector<Descriptor>& calls, const MakeTransport& make,
           const CountCall& count) {
  const auto boxes = std::make_shared<Mailboxes>(ranks);
  std::int64_t most = 1;
  for (const Descriptor& what : calls)
    most = std::max(most, ResolvedCall({.what = what}, ranks).message_bytes / 4);
  std::vector<std::unique_ptr<Rank>> group(static_cast<std::size_t>(ranks));
  const auto on_all = [&](const auto& f) { testing::rank_threads(ranks, f); };
  std::int64_t number = 0;
  for (Descriptor what : calls) {
    what.call = ++number;
    boxes->reset();
    on_all([&](int r) {
      std::unique_ptr<Rank>& rank = group[static_cast<std::size_t>(r)];
      if (!rank) rank = std::make_unique<Rank>(r, ranks, most, boxes, make);
      const StreamGuard guard(rank->stream);
      Descriptor mine = what;
      if (what.kind == CollectiveKind::send) {
        if (r % 2 == 0 && r + 1 == ranks) return;
        mine.kind = r % 2 == 0 ? CollectiveKind::send : CollectiveKind::recv;
        mine.root = r % 2 == 0 ? r + 1 : r - 1;
      }
      rank->transport->run(
          ResolvedCall({.what = mine, .in = rank->input.data(), .out = rank->output.data()}, ranks),
          rank->stream);
      rank->stream.synchronize();
    });
    TrafficTable model;
    const Steps steps = count(what, [&](const Transfer& moved) { model.add(moved); });
    const std::string text = fmt::format("{} between {} ranks", what.str(), ranks);
    EXPECT_EQ(model.difference(boxes->moved), "") << text;
    EXPECT_EQ(steps.hosts, boxes->steps()) << text;
    EXPECT_EQ(steps.peers, 0) << text;
    EXPECT_FALSE(model.empty()) << text;
  }
  on_all([&](int r) { group[static_cast<std::size_t>(r)].reset(); });
}

class HostTrafficTest : public testing::DeviceTest, public ::testing::WithParamInterface<int> {};

// Elements: one, a slice that fits no entry, and chunks with a rest where that does not take long.
std::vector<std::int64_t> counts_for(int ranks) {
  std::vector<std::int64_t> counts{1, 8'209};
  if (ranks <= 8) counts.push_back(300'007);
  if (ranks <= 3) counts.push_back((std::int64_t{5} << 20) + 3);
  return counts;
}

TEST_P(HostTrafficTest, EveryOperationMovesWhatTheModelSays) {
  GANTRY_REQUIRE_DEVICES(1);
  const int ranks = GetParam();
  std::vector<Descriptor> calls;
  for (const CollectiveKind kind : kKinds) {
    for (const std::int64_t count : counts_for(ranks))
      calls.push_back(describe(kind, count, ranks));
  }
  check(
      ranks, calls, [](const Membership&, std::unique_ptr<HostTransport> all) { return all; },
      [&](const Descriptor& what, const TransferVisitor& visit) {
        return count_over_hosts(what, ranks, visit);
      });
}

TEST_P(HostTrafficTest, MessagesMoveWhatTheModelSays) {
  GANTRY_REQUIRE_DEVICES(1);
  const int ranks = GetParam();
  std::vector<Descriptor> calls;
  for (const std::int64_t count : {1, 8'209, 600'001}) {
    calls.push_back({.count = count, .kind = CollectiveKind::send, .dtype = DType::f32});
  }
  check(
      ranks, calls, [](const Membership&, std::unique_ptr<HostTransport> all) { return all; },
      [&](const Descriptor& what, const TransferVisitor& visit) {
        Steps steps;
        for (int r = 0; r + 1 < ranks; r += 2) {
          steps = count_message_over_hosts(what, r, r + 1, ranks, visit);
        }
        return steps;
      });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostTrafficTest, ::testing::Values(2, 3, 4, 8, 16, 32, 64));

// Machines and ranks of each, and whether ranks are dealt to the machines in turn.
struct Shape {
  int nodes;
  int width;
  bool is_dealt = false;
};

class LevelTrafficTest : public testing::DeviceTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(LevelTrafficTest, EveryOperationMovesWhatTheModelSays) {
  GANTRY_REQUIRE_DEVICES(1);
  const Shape shape = GetParam();
  const int ranks = shape.nodes * shape.width;
  std::vector<std::string> machines;
  for (int r = 0; r < ranks; ++r) {
    machines.push_back(std::to_string(shape.is_dealt ? r % shape.nodes : r / shape.width));
  }
  const NodeMap map(machines);
  std::vector<Descriptor> calls;
  for (const CollectiveKind kind : kKinds) {
    for (const std::int64_t count : counts_for(ranks)) {
      calls.push_back(describe(kind, count, ranks));
      if (!reduces(kind)) continue;
      calls.push_back(calls.back());
      calls.back().reproducible = 0;
    }
  }
  // More than scratch memory holds at a time.
  if (ranks <= 4) {
    for (const CollectiveKind kind : kKinds) {
      const bool is_array = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
                            kind == CollectiveKind::broadcast;
      const std::int64_t elements = (std::int64_t{17} << 20) / 4 + 5;
      if (kind == CollectiveKind::barrier) continue;
      calls.push_back(describe(kind, is_array ? elements : elements / ranks, ranks));
    }
  }
  check(
      ranks, calls,
      [&](const Membership& me, std::unique_ptr<HostTransport> all) -> std::unique_ptr<Transport> {
        auto node = all->among(map.members(map.node_of(me.rank)));
        return std::make_unique<HierarchicalTransport>(HierarchyParts{
            .everyone = me, .map = map, .all = std::move(all), .node = std::move(node)});
      },
      [&](const Descriptor& what, const TransferVisitor& visit) {
        const NodeCounter in_node = [](const ResolvedCall& part, int width,
                                       const TransferVisitor& visit_part) {
          return count_over_hosts(part.what, width, visit_part);
        };
        return count_by_levels(what, map, in_node, visit);
      });
}

INSTANTIATE_TEST_SUITE_P(Shapes, LevelTrafficTest,
                         ::testing::Values(Shape{2, 2}, Shape{2, 2, true}, Shape{3, 2}, Shape{2, 4},
                                           Shape{4, 2, true}, Shape{2, 8}, Shape{4, 8}, Shape{8, 8},
                                           Shape{16, 4}),
                         [](const auto& shape) {
                           return fmt::format("{}x{}{}", shape.param.nodes, shape.param.width,
                                              shape.param.is_dealt ? "dealt" : "");
                         });

}  // namespace
}  // namespace gantry
