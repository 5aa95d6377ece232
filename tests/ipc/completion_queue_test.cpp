// Completions that are polled, and the intervals of polls by a clock of the test.
#include "ipc/completion_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr milliseconds kLongest(1);

TEST(PollBackoffTest, IntervalsGrowWithTheWait) {
  const PollBackoff::Clock::time_point begin{};
  const PollBackoff backoff(kLongest, begin);
  EXPECT_EQ(backoff.interval(begin), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + microseconds(80)), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + microseconds(800)), microseconds(50));
  EXPECT_EQ(backoff.interval(begin + milliseconds(8)), microseconds(500));
  EXPECT_EQ(backoff.interval(begin + milliseconds(16)), kLongest);
  EXPECT_EQ(backoff.interval(begin + seconds(100)), kLongest);
}

// At the shortest interval a second would have 200,000 polls.
TEST(PollBackoffTest, ALongWaitTakesFewPolls) {
  const PollBackoff::Clock::time_point begin{};
  const PollBackoff backoff(kLongest, begin);
  int polls = 0;
  for (auto now = begin; now < begin + seconds(1); now += backoff.interval(now)) ++polls;
  EXPECT_LE(polls, 1120);
}

TEST(PollBackoffTest, AChangeStartsItAgain) {
  const PollBackoff::Clock::time_point begin{};
  PollBackoff backoff(kLongest, begin);
  backoff.restart(begin + seconds(1));
  EXPECT_EQ(backoff.interval(begin + seconds(1)), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + seconds(2)), kLongest);
}

// Calls functions of the test.
class TestCompletion final : public Completion {
 public:
  TestCompletion(std::function<bool()> is_complete, std::function<void()> perform)
      : is_complete_(std::move(is_complete)), perform_(std::move(perform)) {}
  bool is_complete() override { return is_complete_(); }
  void perform() noexcept override { perform_(); }

 private:
  std::function<bool()> is_complete_;
  std::function<void()> perform_;
};

void add(CompletionQueue& queue, std::function<bool()> is_complete, std::function<void()> perform) {
  CompletionQueue::Entries entries;
  entries.push_back(std::make_unique<TestCompletion>(std::move(is_complete), std::move(perform)));
  queue.add(std::move(entries));
}

// A queue with a running thread. Queues with a thread live as long as the process.
CompletionQueue& running_queue() {
  static auto& queue = *new CompletionQueue("gantry-test", kLongest);
  queue.start();
  return queue;
}

TEST(CompletionQueueTest, PerformsEachCompleteEntryOnce) {
  CompletionQueue queue("gantry-test", kLongest);
  bool is_complete = false;
  int performed = 0;
  const auto owner = std::make_shared<int>(0);
  add(
      queue, [&] { return is_complete; }, [&, owner] { ++performed; });
  EXPECT_EQ(queue.run_completed(), 0u);
  EXPECT_EQ(performed, 0);
  is_complete = true;
  EXPECT_EQ(queue.run_completed(), 1u);
  EXPECT_EQ(queue.run_completed(), 0u);
  EXPECT_EQ(performed, 1);
  EXPECT_EQ(owner.use_count(), 1) << "the entry is destroyed in its round";
}

// One fault is raised for a process that several streams wait for: no stream continues before the
// waits of all streams are polled.
TEST(CompletionQueueTest, ARoundPollsAllEntriesBeforeItPerformsOne) {
  CompletionQueue queue("gantry-test", kLongest);
  std::vector<std::string> log;
  for (const std::string name : {"a", "b"}) {
    add(
        queue,
        [&log, name] {
          log.push_back("poll " + name);
          return true;
        },
        [&log, name] { log.push_back("perform " + name); });
  }
  EXPECT_EQ(queue.run_completed(), 2u);
  EXPECT_THAT(log, ElementsAre("poll a", "poll b", "perform a", "perform b"));
}

TEST(CompletionQueueTest, EntriesWithoutMemoryArePolledAgain) {
  CompletionQueue queue("gantry-test", kLongest);
  int polls = 0;
  bool is_performed = false;
  add(
      queue, [&]() -> bool { return ++polls == 1 ? throw std::bad_alloc() : true; },
      [&] { is_performed = true; });
  EXPECT_EQ(queue.run_completed(), 0u);
  EXPECT_EQ(queue.run_completed(), 1u);
  EXPECT_TRUE(is_performed);
}

TEST(CompletionQueueTest, TheThreadPollsEntriesThatNoCallPolls) {
  for (int i = 0; i < 3; ++i) {
    std::atomic<int> polls = 0;
    std::atomic<bool> is_complete = false;
    std::promise<void> performed;
    add(
        running_queue(),
        [&] {
          ++polls;
          return is_complete.load();
        },
        [&] { performed.set_value(); });
    EXPECT_TRUE(eventually([&] { return polls > 2; }));
    is_complete = true;
    performed.get_future().get();
    static_cast<void>(running_queue().run_completed());  // after the thread's round
  }
}

// True if this process has a thread of that name, which sleeps.
bool is_asleep(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (std::getline(file, stat) && stat.find("(" + name + ") S") != std::string::npos) return true;
  }
  return false;
}

// The thread finds no entry, because a call is polling the only one.
TEST(CompletionQueueTest, TheThreadGoesOnWithEntriesThatACallPolled) {
  auto& queue = *new CompletionQueue("gantry-test-b", kLongest);  // its thread does not end
  std::promise<void> begun;
  std::promise<void> asleep;
  std::promise<void> performed;
  int polls = 0;
  add(
      queue,
      [&] {
        if (++polls > 1) return true;
        begun.set_value();
        asleep.get_future().get();
        return false;
      },
      [&] { performed.set_value(); });
  auto call = std::async(std::launch::async, [&] { return queue.run_completed(); });
  begun.get_future().get();
  queue.start();
  EXPECT_TRUE(eventually([] { return is_asleep("gantry-test-b"); }));
  asleep.set_value();
  EXPECT_EQ(call.get(), 0u);
  performed.get_future().get();
  static_cast<void>(queue.run_completed());  // after the thread's round
}

TEST(CompletionQueueTest, ACallWaitsForTheRoundOfAnotherThread) {
  CompletionQueue queue("gantry-test", kLongest);
  std::promise<void> begun;
  std::promise<void> release;
  std::atomic<bool> is_performed = false;
  add(
      queue, [] { return true; },
      [&] {
        begun.set_value();
        release.get_future().get();
        is_performed = true;
      });
  auto round = std::async(std::launch::async, [&] { return queue.run_completed(); });
  begun.get_future().get();
  auto call = std::async(std::launch::async, [&] {
    const std::size_t performed = queue.run_completed();
    EXPECT_TRUE(is_performed);
    return performed;
  });
  release.set_value();
  EXPECT_EQ(round.get(), 1u);
  EXPECT_EQ(call.get(), 0u);
}

}  // namespace
}  // namespace gantry::memory
