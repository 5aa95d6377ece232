// One producer, seven consumers, and one of the eight killed at a random moment, 200 times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::imported;
using gantry::testing::IpcWorker;
using gantry::testing::nothing_held;
using gantry::testing::WorkerReply;

constexpr int kConsumers = 7;
constexpr int kRounds = 100;  // for each kind of memory
constexpr int kBlocks = 3;
constexpr std::size_t kBytes = 200000;

// The parameter: the kind of memory that ipc_worker exports.
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
  // Spins for a random time, so that the kill hits every stage of an import.
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
    const WorkerReply content = imported({first, first + 1, first + 2});

    for (const auto& consumer : consumers_)
      consumer->write_line(IpcWorker::command("import", handles));
    const bool free_early = random_() % 2 == 0;
    if (free_early) producer_->write_line("free");
    let_some_time_pass();
    kill(victim < 0 ? *producer_ : *consumers_[static_cast<std::size_t>(victim)]);

    for (int i = 0; i < kConsumers; ++i) {
      if (i == victim) continue;
      const WorkerReply reply = consumers_[static_cast<std::size_t>(i)]->read_reply();
      const bool is_lost = victim < 0 && (reply.status == "lost" || reply.status == "error");
      EXPECT_TRUE(reply == content || (free_early && reply.status == "freed") || is_lost) << reply;
      ++outcomes[reply == content          ? 0
                 : reply.status == "freed" ? 1
                 : reply.status == "lost"  ? 2
                                           : 3];
    }
    if (victim >= 0 && free_early) static_cast<void>(producer_->read_reply());
    if (victim >= 0 && !free_early) producer_->free_blocks();
    for (int i = 0; i < kConsumers; ++i) {
      if (i == victim) continue;
      EXPECT_EQ(consumers_[static_cast<std::size_t>(i)]->drop_imports(), nothing_held());
    }
    if (victim < 0) {
      start_producer();
    } else {
      EXPECT_EQ(producer_->collect(), nothing_held()) << "memory did not come back";
      start_consumer(victim);
    }
  }
  std::printf("imports: %d seen, %d freed before, %d lost, %d failed\n", outcomes[0], outcomes[1],
              outcomes[2], outcomes[3]);
  EXPECT_GT(outcomes[0], 0);
}

}  // namespace
}  // namespace gantry::memory
