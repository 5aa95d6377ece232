// Collectives, messages and copies between devices in traces: their events contain the events of
// their kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/trace/trace_events.hpp"

namespace gantry::testing {
namespace {

constexpr int kRanks = 2;

// What a rank of a group works on.
struct Rank {
  explicit Rank(const Communicator& communicator)
      : world(communicator),
        other(kRanks - 1 - world.rank()),
        one(ones({4}, world.device())),
        all(ones({8}, world.device())),
        strided(ones({4, 2}, world.device()).select(1, 0)) {}

  // This rank's block of `all`, whose blocks have 3 and 5 elements.
  Tensor uneven() const { return ones({world.rank() == 0 ? 3 : 5}, world.device()); }

  const Communicator& world;
  int other;
  Tensor one, all, strided;
};

struct TracedCall {
  std::string name;
  std::string category;
  std::function<void(const Rank&)> call;
};

const std::vector<TracedCall>& calls() {
  static const std::vector<TracedCall> kCalls{
      {"all_reduce", "collective", [](const Rank& r) { r.world.all_reduce(r.one); }},
      {"all_reduce", "collective", [](const Rank& r) { r.world.all_reduce(r.strided); }},
      {"all_reduce_coalesced", "collective",
       [](const Rank& r) {
         r.world.all_reduce_coalesced(std::vector<Tensor>{r.one, r.all});
       }},
      {"reduce", "collective", [](const Rank& r) { r.world.reduce(r.one, 1); }},
      {"broadcast", "collective", [](const Rank& r) { r.world.broadcast(r.one); }},
      {"all_gather", "collective", [](const Rank& r) { r.world.all_gather(r.all, r.one); }},
      {"all_gather", "collective", [](const Rank& r) { r.world.all_gather(r.all, r.strided); }},
      {"reduce_scatter", "collective", [](const Rank& r) { r.world.reduce_scatter(r.one, r.all); }},
      {"reduce_scatter", "collective",
       [](const Rank& r) {
         r.world.reduce_scatter(r.uneven(), r.all, {3, 5});
       }},
      {"all_gather", "collective",
       [](const Rank& r) {
         r.world.all_gather(zeros_like(r.all), r.uneven(), {3, 5});
       }},
      {"gather", "collective", [](const Rank& r) { r.world.gather(r.all, r.one); }},
      {"scatter", "collective", [](const Rank& r) { r.world.scatter(r.one, r.all); }},
      {"all_to_all", "collective",
       [](const Rank& r) { r.world.all_to_all(zeros_like(r.all), r.all); }},
      {"barrier", "collective", [](const Rank& r) { r.world.barrier(); }},
      {"send_recv", "collective",
       [](const Rank& r) { r.world.send_recv(r.one, r.other, r.strided, r.other); }},
      {"group", "collective", [](const Rank& r) {
         MessageGroup messages = r.world.group();
         r.world.send(r.one, r.other);
         r.world.recv(r.strided, r.other);
         messages.end();
       }}};
  return kCalls;
}

class TracedCollectivesTest : public DeviceTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    GANTRY_REQUIRE_DEVICES(kRanks);
    ::setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  }
  void TearDown() override {
    ::unsetenv("GANTRY_COLL_ALGO");
    DeviceTest::TearDown();
  }

  const TemporaryFolder folder_;
};

TEST_P(TracedCollectivesTest, AnEventLiesInItsCallAndContainsItsKernels) {
  const std::vector<Communicator> group = Communicator::local({Device::cuda(0), Device::cuda(1)});
  const auto each = [&](const std::function<void(const Rank&)>& body) {
    rank_threads(kRanks, [&](int rank) {
      set_device(Device::cuda(rank));
      body(Rank(group[static_cast<std::size_t>(rank)]));
      synchronize(Device::cuda(rank));
    });
  };
  each([](const Rank& rank) { rank.world.all_reduce(rank.one); });
  trace::start(folder_ / "trace.json");
  each([](const Rank& rank) {
    for (const TracedCall& call : calls()) {
      const trace::Range range("call");
      call.call(rank);
    }
    const trace::Range range("message");
    const CollectiveOptions options{.tag = "last"};
    rank.world.rank() == 0 ? rank.world.send(rank.one, 1, options)
                           : rank.world.recv(rank.one, 0, options);
  });
  trace::stop();
  const std::vector<TracedEvent> events = traced_events(folder_ / "trace.json");
  expect_nested(events);
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> place;
  int messages = 0;
  for (const TracedEvent& event : events) {
    if (event.category != "range") continue;
    const std::vector<TracedEvent> children = children_of(event, events);
    ASSERT_FALSE(children.empty());
    if (event.name == "message") {
      ++messages;
      EXPECT_EQ(children.back().category, "collective");
      EXPECT_TRUE(children.back().name == "send" || children.back().name == "recv");
      EXPECT_EQ(children.back().arguments.at("bytes").as<int>(), 16);
      EXPECT_LE(children.back().arguments.at("number").as<std::int64_t>(), 100);
      EXPECT_EQ(children.back().arguments.at("tag").as<std::string>(), "last");
      continue;
    }
    const TracedCall& call = calls()[place[event.line]++];
    EXPECT_EQ(children.back().name, call.name);
    EXPECT_EQ(children.back().category, call.category) << call.name;
    if (call.name == "send_recv" || call.name == "group") {
      const Json& list = children.back().arguments.at("messages");
      ASSERT_EQ(list.size(), 2u) << call.name;
      EXPECT_EQ(children.back().arguments.at("bytes").as<int>(), 32);
      EXPECT_NE(list.at(0).at("call").as<std::string>().find("send f32[4]"), std::string::npos);
      EXPECT_NE(list.at(1).at("call").as<std::string>().find("recv f32[4]"), std::string::npos);
    }
    const Json& arguments = children.back().arguments;
    if (call.name == "reduce_scatter") {
      const bool is_uneven =
          arguments.at("call").as<std::string>() == "reduce_scatter sum f32[3+5]";
      EXPECT_EQ(arguments.at("bytes").as<int>(), is_uneven ? 32 : 16);
    }
    if (call.name == "all_reduce_coalesced") {
      ASSERT_EQ(children.size(), 1u) << "the event contains its packing";
      const Json& list = children.back().arguments.at("messages");
      ASSERT_EQ(list.size(), 1u) << "one transfer per dtype";
      EXPECT_EQ(children.back().arguments.at("bytes").as<int>(), 48);
      EXPECT_NE(list.at(0).at("call").as<std::string>().find("all_reduce"), std::string::npos);
    }
  }
  EXPECT_EQ(messages, kRanks);
  ASSERT_EQ(place.size(), static_cast<std::size_t>(kRanks));
  for (const auto& [line, count] : place) EXPECT_EQ(count, calls().size());
  for (const TracedEvent& event : events) {
    EXPECT_NE(event.name, "collective") << "a kernel has the name of its call";
#ifndef __SANITIZE_ADDRESS__  // there the heap has tasks, which poison freed memory
    EXPECT_NE(event.name, "task");
#endif
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, TracedCollectivesTest,
                         ::testing::Values("", "one_shot", "two_shot", "host"),
                         [](const auto& info) {
                           return *info.param == '\0' ? std::string("automatic")
                                                      : std::string(info.param);
                         });

class TracedCopiesTest : public DeviceTest {};

TEST_F(TracedCopiesTest, CallsOverDevicesHaveTheirNameAndOperands) {
  GANTRY_REQUIRE_DEVICES(2);
  const TemporaryFolder folder;
  const std::vector<Device> devices{Device::cuda(0), Device::cuda(1)};
  std::vector<Tensor> tensors{ones({8, 2}, devices[0]), ones({8, 2}, devices[1])};
  std::vector<Tensor> wide{zeros({16, 2}, devices[0]), zeros({16, 2}, devices[1])};
  std::vector<Tensor> outs{zeros({8, 2}, devices[0]), zeros({8, 2}, devices[1])};
  std::vector<Tensor> shares{zeros({4, 2}, devices[0]), zeros({4, 2}, devices[1])};
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"broadcast", [&] { (void)comm::broadcast(tensors[0], devices); }},
      {"broadcast_coalesced", [&] { (void)comm::broadcast_coalesced({tensors[0]}, devices); }},
      {"reduce_add", [&] { (void)comm::reduce_add(tensors); }},
      {"reduce_add_coalesced",
       [&] {
         (void)comm::reduce_add_coalesced({{tensors[0]}, {tensors[1]}});
       }},
      {"scatter", [&] { (void)comm::scatter(tensors[0], devices); }},
      {"gather", [&] { (void)comm::gather(tensors); }},
      {"all_reduce", [&] { comm::all_reduce(tensors); }},
      {"all_gather", [&] { comm::all_gather(wide, tensors); }},
      {"reduce_scatter", [&] { comm::reduce_scatter(shares, tensors); }},
      {"all_to_all", [&] { comm::all_to_all(outs, tensors); }},
      {"to", [&] { (void)tensors[0].to(devices[1]); }}};
  trace::start(folder / "trace.json");
  for (const auto& [name, call] : calls) {
    const trace::Range range(name);
    call();
  }
  trace::stop();
  const std::vector<TracedEvent> events = traced_events(folder / "trace.json");
  expect_nested(events);
  std::size_t seen = 0;
  for (const TracedEvent& event : events) {
    if (event.category == "range") {
      const std::vector<TracedEvent> children = children_of(event, events);
      ASSERT_EQ(children.size(), 1u) << event.name;
      EXPECT_EQ(children[0].name, event.name);
      EXPECT_EQ(children[0].category, "op");
      ++seen;
    }
    if (event.category == "op" && event.arguments.is_object() &&
        event.arguments.contains("operands")) {
      EXPECT_NE(event.arguments.at("operands").as<std::string>(), "") << event.name;
    }
  }
  EXPECT_EQ(seen, calls.size());
}

}  // namespace
}  // namespace gantry::testing
