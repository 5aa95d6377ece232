// The order of a simulated graph's branches, of its launches, and what a failure in it leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/device/sim/scheduled_machine.hpp"
#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

using Numbers = std::vector<int>;

// Schedules under which the orders below differ.
std::vector<std::string> schedules() {
  std::vector<std::string> all{"earliest", "latest"};
  for (int seed = 1; seed <= 40; ++seed) all.push_back(std::to_string(seed));
  return all;
}

// The graph of what `work` submits to stream 0 and to those that join it.
NativeGraph capture(ScheduledMachine& machine, const std::function<void()>& work) {
  machine.driver.begin_capture(machine.streams[0], CaptureMode::global);
  work();
  return machine.driver.end_capture(machine.streams[0]);
}

// A graph of one node on each of two branches, and of none on the first.
NativeGraph capture_two_branches(ScheduledMachine& machine) {
  return capture(machine, [&] {
    for (const int side : {1, 2}) machine.wait(side, 0);
    for (const int side : {1, 2}) machine.launch(side, side);
    for (const int side : {1, 2}) machine.wait(0, side);
  });
}

TEST(SimGraphTest, BranchesRunBehindWhatTheLaunchFollowsAndBeforeWhatFollowsIt) {
  for (const std::string& schedule : schedules()) {
    SCOPED_TRACE(schedule);
    ScheduledMachine machine(schedule);
    const NativeGraph graph = capture_two_branches(machine);
    machine.launch(0, 0);
    machine.driver.launch_graph(graph, machine.streams[0]);
    machine.launch(0, 3);
    machine.synchronize_all();
    Numbers ran = machine.numbers();
    ASSERT_EQ(ran.size(), 4u);
    EXPECT_EQ(ran.front(), 0);
    EXPECT_EQ(ran.back(), 3);
    machine.driver.destroy_graph(graph);
  }
}

TEST(SimGraphTest, ABranchWaitsForWhatItFollowsAndForNothingElse) {
  std::set<Numbers> orders;
  for (const std::string& schedule : schedules()) {
    ScheduledMachine machine(schedule);
    const NativeGraph graph = capture(machine, [&] {
      machine.launch(0, 1);
      machine.wait(1, 0);
      machine.launch(1, 5);
      machine.launch(0, 2);
      machine.wait(0, 1);
      machine.launch(0, 3);
    });
    machine.driver.launch_graph(graph, machine.streams[0]);
    machine.synchronize_all();
    orders.insert(machine.numbers());
    machine.driver.destroy_graph(graph);
  }
  EXPECT_EQ(orders, (std::set<Numbers>{{1, 2, 5, 3}, {1, 5, 2, 3}}));
}

TEST(SimGraphTest, LaunchesOnSeveralStreamsFollowEachOther) {
  for (const std::string& schedule : schedules()) {
    SCOPED_TRACE(schedule);
    ScheduledMachine machine(schedule);
    const NativeGraph graph = capture(machine, [&] {
      machine.launch(0, 1);
      machine.wait(1, 0);
      machine.launch(1, 5);
      machine.wait(0, 1);
      machine.launch(0, 2);
    });
    machine.driver.launch_graph(graph, machine.streams[0]);
    machine.driver.launch_graph(graph, machine.streams[2]);
    machine.synchronize_all();
    EXPECT_EQ(machine.numbers(), (Numbers{1, 5, 2, 1, 5, 2}));
    machine.driver.destroy_graph(graph);
  }
}

TEST(SimGraphTest, NoBranchRunsBehindAFailureOfTheStream) {
  for (const std::string& schedule : schedules()) {
    SCOPED_TRACE(schedule);
    ScheduledMachine machine(schedule);
    const NativeGraph graph = capture_two_branches(machine);
    sim::launch(machine.streams[0], [] { throw std::runtime_error("failed before"); });
    machine.driver.launch_graph(graph, machine.streams[0]);
    EXPECT_THROW(machine.synchronize(0), std::runtime_error);
    machine.synchronize_all();
    EXPECT_TRUE(machine.numbers().empty());
    machine.driver.launch_graph(graph, machine.streams[0]);
    machine.synchronize_all();
    EXPECT_EQ(machine.numbers().size(), 2u) << "the next launch";
    machine.driver.destroy_graph(graph);
  }
}

TEST(SimGraphTest, AFailureOfABranchIsThatOfOneLaunch) {
  ScheduledMachine machine("latest");
  bool fails = true;
  const NativeGraph graph = capture(machine, [&] {
    machine.wait(1, 0);
    sim::launch(machine.streams[1], [&fails] {
      if (fails) throw std::runtime_error("failed in a branch");
    });
    machine.launch(1, 1);
    machine.wait(0, 1);
  });
  machine.driver.launch_graph(graph, machine.streams[0]);
  EXPECT_THROW(machine.synchronize(0), std::runtime_error);
  EXPECT_TRUE(machine.numbers().empty());
  fails = false;
  machine.driver.launch_graph(graph, machine.streams[0]);
  EXPECT_NO_THROW(machine.synchronize(0));
  EXPECT_EQ(machine.numbers(), Numbers{1});
  machine.driver.destroy_graph(graph);
}

TEST(SimGraphTest, AnUpdateKeepsTheTasksOfALaunchInFlight) {
  ScheduledMachine machine("latest");
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = kept;
  const NativeGraph graph = capture(machine, [&] {
    sim::launch(machine.streams[0], [kept] { ++*kept; });
    machine.launch(0, 1);
  });
  kept.reset();
  const NativeGraph other = capture(machine, [&] {
    machine.launch(0, 2);
    machine.launch(0, 3);
  });
  machine.driver.launch_graph(graph, machine.streams[0]);
  EXPECT_TRUE(machine.driver.update_graph(graph, other));
  ASSERT_FALSE(watched.expired());
  machine.driver.launch_graph(graph, machine.streams[0]);
  machine.synchronize_all();
  EXPECT_EQ(machine.numbers(), (Numbers{1, 2, 3}));
  EXPECT_TRUE(watched.expired()) << "no launch needs them any more";
  for (const NativeGraph one : {graph, other}) machine.driver.destroy_graph(one);
}

TEST(SimGraphTest, AnUpdateFromAGraphOfOtherDevicesIsRefused) {
  ScheduledMachine machine("latest");
  const auto branch_on = [&](int side) {
    return capture(machine, [&] {
      machine.launch(0, 0);
      machine.wait(side, 0);
      machine.launch(side, side);
      machine.wait(0, side);
    });
  };
  // Streams 1 and 3 are of device 1.
  const NativeGraph graph = branch_on(1);
  const NativeGraph same = branch_on(3);
  const NativeGraph other = branch_on(2);
  EXPECT_FALSE(machine.driver.update_graph(graph, other));
  EXPECT_TRUE(machine.driver.update_graph(graph, same));
  machine.driver.launch_graph(graph, machine.streams[0]);
  machine.synchronize_all();
  EXPECT_EQ(machine.numbers(), (Numbers{0, 3}));
  for (const NativeGraph one : {graph, same, other}) machine.driver.destroy_graph(one);
}

}  // namespace
}  // namespace gantry::testing
