// One producer, seven consumers, and one of the eight killed at a random moment, 200 times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/memory/ipc_worker_process.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::IpcWorker;

constexpr int kConsumers = 7;
constexpr int kRounds = 100;  // for each kind of memory
constexpr int kBlocks = 3;
constexpr std::size_t kBytes = 200000;

// The argument: where the producer's memory comes from, see ipc_worker.
class IpcCrashTest : public gantry::testing::DeviceTest,
                     public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    start_producer();
    consumers_.resize(kConsumers);
    for (int i = 0; i < kConsumers; ++i) start_consumer(i);
  }
  void start_producer() { producer_ = std::make_unique<IpcWorker>(GetParam(), 0); }
  void start_consumer(int index) {
    consumers_[static_cast<std::size_t>(index)] =
        std::make_unique<IpcWorker>("heap", (index + 1) % device_count());
  }
  // Not to wait for anything: any moment will do, and all of them shall be hit.
  void let_some_time_pass() {
    // A GPU's context alone takes a process some hundred milliseconds.
    const unsigned slow_us = platform() == Platform::cuda ? 400'000 : 10'000;
    const unsigned longest_us = random_() % 2 == 0 ? 3000 : slow_us;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random_() % longest_us);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  static void kill(IpcWorker& victim) {
    victim.kill(SIGKILL);
    EXPECT_EQ(victim.wait(), -SIGKILL);
  }

  std::mt19937 random_{7};
  std::unique_ptr<IpcWorker> producer_;
  std::vector<std::unique_ptr<IpcWorker>> consumers_;
};

INSTANTIATE_TEST_SUITE_P(Memory, IpcCrashTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IpcCrashTest, MemoryReturnsWhoeverIsKilled) {
  std::vector<int> outcomes(4);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int victim = static_cast<int>(random_() % (kConsumers + 1)) - 1;  // -1: the producer
    const int first = round % 200;
    const auto handles = producer_->export_blocks(kBlocks, kBytes, first);
    ASSERT_EQ(handles.size(), static_cast<std::size_t>(kBlocks));
    const std::string content = std::to_string(first) + ' ' + std::to_string(first + 1) + ' ' +
                                std::to_string(first + 2) + ' ';

    for (const auto& consumer : consumers_)
      consumer->write_line(IpcWorker::import_command(handles));
    const bool free_early = random_() % 2 == 0;
    if (free_early) producer_->write_line("free");
    let_some_time_pass();
    kill(victim < 0 ? *producer_ : *consumers_[static_cast<std::size_t>(victim)]);

    for (int i = 0; i < kConsumers; ++i) {
      if (i == victim) continue;
      const std::string answer = consumers_[static_cast<std::size_t>(i)]->read_line();
      const bool is_gone = victim < 0 && (answer == "lost" || answer.starts_with("error: "));
      EXPECT_TRUE(answer == content || (free_early && answer == "freed") || is_gone) << answer;
      ++outcomes[answer == content ? 0 : answer == "freed" ? 1 : answer == "lost" ? 2 : 3];
    }
    if (victim >= 0 && free_early) static_cast<void>(producer_->read_line());
    if (victim >= 0 && !free_early) producer_->ask("free");
    for (int i = 0; i < kConsumers; ++i) {
      if (i == victim) continue;
      EXPECT_EQ(consumers_[static_cast<std::size_t>(i)]->ask("drop"), "0 0 0");
    }
    if (victim < 0) {
      start_producer();
    } else {
      EXPECT_EQ(producer_->ask("collect"), "0 0") << "memory did not come back";
      start_consumer(victim);
    }
  }
  std::printf("imports: %d seen, %d freed before, %d lost, %d failed\n", outcomes[0], outcomes[1],
              outcomes[2], outcomes[3]);
  EXPECT_GT(outcomes[0], 0);
}

}  // namespace
}  // namespace gantry::memory
