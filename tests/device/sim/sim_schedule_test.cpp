// The order of tasks under GANTRY_SIM_SCHEDULE.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/sim/scheduled_machine.hpp"
#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

using Machine = ScheduledMachine;
using Numbers = std::vector<int>;

TEST(SimScheduleTest, LatestRunsNothingUntilTheHostWaits) {
  Machine machine("latest");
  machine.launch(0, 1);
  machine.launch(1, 2);
  machine.launch(0, 3);
  EXPECT_EQ(machine.numbers(), Numbers{});
  machine.synchronize(1);
  EXPECT_EQ(machine.numbers(), Numbers{2}) << "only what the wait needs";
  machine.synchronize(0);
  EXPECT_EQ(machine.numbers(), (Numbers{2, 1, 3}));
}

TEST(SimScheduleTest, LatestRunsWhatTheNeededTaskWaitsFor) {
  Machine machine("latest");
  machine.launch(0, 1);
  machine.launch(1, 2);
  machine.wait(2, 0);
  machine.launch(0, 3);
  machine.launch(2, 4);
  machine.synchronize(2);
  EXPECT_EQ(machine.numbers(), (Numbers{1, 4}));
  machine.synchronize_all();
}

TEST(SimScheduleTest, LatestRunsTheNewestOfUnorderedTasksFirst) {
  Machine machine("latest");
  machine.launch(0, 1);
  machine.launch(2, 2);
  machine.launch(0, 3);
  machine.driver.synchronize_device(0);
  EXPECT_EQ(machine.numbers(), (Numbers{2, 1, 3}));
}

TEST(SimScheduleTest, EarliestRunsATaskInTheCallThatPermitsIt) {
  Machine machine("earliest");
  machine.launch(0, 1);
  EXPECT_EQ(machine.numbers(), Numbers{1});
  machine.wait(1, 0);
  machine.launch(1, 2);
  machine.launch(0, 3);
  EXPECT_EQ(machine.numbers(), (Numbers{1, 2, 3}));
}

// A program of many tasks on four streams with waits between them.
std::vector<sim::Schedule::Step> order_of(const std::string& schedule) {
  Machine machine(schedule);
  for (int i = 0; i < 40; ++i) {
    machine.launch(i % 4, i);
    if (i % 7 == 3) machine.wait((i + 1) % 4, i % 4);
    if (i % 19 == 18) machine.synchronize(i % 4);
  }
  machine.synchronize_all();
  return machine.driver.schedule()->order();
}

TEST(SimScheduleTest, ASeedGivesTheSameOrderEachTimeAndSeedsDiffer) {
  std::set<std::string> orders;
  for (int seed = 0; seed < 20; ++seed) {
    const std::string schedule = std::to_string(seed);
    const auto order = order_of(schedule);
    EXPECT_GE(order.size(), 40U);
    for (int again = 0; again < 3; ++again) EXPECT_EQ(order_of(schedule), order) << seed;
    std::string text;
    for (const auto& step : order) text += std::to_string(step.stream) + ",";
    orders.insert(text);
  }
  EXPECT_GT(orders.size(), 15U);
}

TEST(SimScheduleTest, EverySeedKeepsTheOrderThatTheProgramAsksFor) {
  for (int seed = 0; seed < 50; ++seed) {
    Machine machine(std::to_string(seed));
    machine.launch(0, 1);
    machine.launch(0, 2);
    machine.wait(1, 0);
    machine.launch(1, 3);
    machine.wait(2, 1);
    machine.launch(2, 4);
    machine.synchronize(2);
    EXPECT_EQ(machine.numbers(), (Numbers{1, 2, 3, 4})) << seed;
  }
}

class SimAnyScheduleTest : public ::testing::TestWithParam<const char*> {};

// The task sleeps until the host, behind the submission, lets it go.
TEST_P(SimAnyScheduleTest, ATaskThatSleepsHoldsOnlyItsStreamUp) {
  Machine machine(GetParam());
  Gate gate(machine.streams[0]);
  machine.launch(0, 1);
  machine.launch(1, 2);
  machine.synchronize(1);
  EXPECT_EQ(machine.numbers(), Numbers{2});
  gate.open();
  machine.synchronize(0);
  EXPECT_EQ(machine.numbers(), (Numbers{2, 1}));
}

// Kernels of ranks that one thread launches one after the other.
void launch_tasks_that_poll_each_other(Machine& machine, std::atomic<int>& arrived) {
  for (int rank = 0; rank < 4; ++rank) {
    sim::launch(
        machine.streams[static_cast<std::size_t>(rank)],
        [&arrived] {
          for (int round = 1; round <= 3; ++round) {
            ++arrived;
            while (arrived < 4 * round) {
              if (!sim::pause_task()) std::this_thread::yield();
            }
          }
        },
        sim::KernelWaits::for_peers);
  }
}

TEST_P(SimAnyScheduleTest, TasksThatPollEachOtherGoOn) {
  Machine machine(GetParam());
  std::atomic<int> arrived{0};
  launch_tasks_that_poll_each_other(machine, arrived);
  machine.synchronize(3);
  EXPECT_EQ(arrived, 12);
  machine.synchronize_all();
}

// Kernels of the program do not pause, so the schedule puts them aside. Were each of these waits a
// task that computes, they would take minutes.
TEST_P(SimAnyScheduleTest, TasksThatSpinForEachOtherGoOn) {
  constexpr int kRounds = 150;
  Machine machine(GetParam());
  std::atomic<int> arrived{0};
  for (int round = 1; round <= kRounds; ++round) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      sim::launch(
          machine.streams[rank],
          [&arrived, round] {
            ++arrived;
            while (arrived < 2 * round) std::this_thread::yield();
          },
          sim::KernelWaits::by_spinning);
    }
  }
  machine.synchronize(0);
  EXPECT_EQ(arrived, 2 * kRounds);
  machine.synchronize_all();
}

// Nothing but the polls tells that the first task needs the others.
TEST_P(SimAnyScheduleTest, TasksThatPollEachOtherGoOnWhileTheHostQueriesOne) {
  Machine machine(GetParam());
  std::atomic<int> arrived{0};
  launch_tasks_that_poll_each_other(machine, arrived);
  while (!machine.driver.query_stream(machine.streams[0])) std::this_thread::yield();
  EXPECT_EQ(arrived, 12);
  machine.synchronize_all();
}

TEST_P(SimAnyScheduleTest, PollingAQueryEnds) {
  Machine machine(GetParam());
  machine.launch(1, 1);
  machine.wait(0, 1);
  machine.launch(0, 2);
  while (!machine.driver.query_stream(machine.streams[0])) std::this_thread::yield();
  EXPECT_EQ(machine.numbers(), (Numbers{1, 2}));
}

TEST_P(SimAnyScheduleTest, PollingMemoryEnds) {
  Machine machine(GetParam());
  std::atomic<bool> ran{false};
  sim::launch(machine.streams[0], [&ran] { ran = true; });
  while (!ran) std::this_thread::yield();
}

TEST_P(SimAnyScheduleTest, MoreTasksThanAQueueHoldsAreNoDeadlock) {
  Machine machine(GetParam());
  for (int i = 0; i < 3000; ++i) machine.launch(0, i);
  machine.synchronize(0);
  EXPECT_EQ(machine.numbers().size(), 3000U);
}

TEST_P(SimAnyScheduleTest, ThreadsThatSubmitAndWaitGoOn) {
  Machine machine(GetParam());
  std::atomic<int> ran{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        sim::launch(machine.streams[i], [&ran] { ++ran; });
        machine.driver.synchronize_stream(machine.streams[i]);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(ran, 200);
}

// What is queued at the end still runs, as without a schedule.
TEST_P(SimAnyScheduleTest, TheEndOfTheMachineRunsWhatIsQueued) {
  int ran = 0;
  {
    const Machine machine(GetParam());
    for (int i = 0; i < 10; ++i) sim::launch(machine.streams[0], [&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 10);
}

INSTANTIATE_TEST_SUITE_P(All, SimAnyScheduleTest,
                         ::testing::Values("latest", "earliest", "1", "2", "3", "4"));

TEST(SimScheduleTest, AMalformedValueIsAnError) {
  for (const char* value : {"late", "-1", "1.5", "7 "}) {
    const Scheduled scheduled(value);
    try {
      (void)make_sim_driver(1);
      ADD_FAILURE() << value << " is taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                std::string("GANTRY_SIM_SCHEDULE: expected earliest, latest or a whole number, but "
                            "got '") +
                    value + "'");
    }
  }
}

}  // namespace
}  // namespace gantry::testing
