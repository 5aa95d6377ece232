// The words in which kernels report faults, with threads in place of kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/control/fault_words.hpp"
#include "collectives/sim/block.hpp"

namespace gantry::protocol {
namespace {

constexpr int kTaken = 300'000;

std::uint64_t call_by(int peer) { return 1000 + static_cast<std::uint64_t>(peer); }

// Faults that queues of one rank report concurrently are read unchanged.
TEST(FaultWordsTest, CallAndPeerBelongTogether) {
  constexpr int kQueues = 3;
  DeviceWords words;
  std::atomic<bool> goes_on = true;
  std::vector<std::thread> queues;
  for (int peer = 0; peer < kQueues; ++peer) {
    queues.emplace_back([&, peer] {
      SimBlock block(0, 1);
      for (std::uint32_t i = 1; goes_on; ++i) {
        report_fault(block, &words, Outcome::mismatch, peer, call_by(peer), i);
      }
    });
  }
  FaultWords host(words);
  int taken = 0;
  int mixed = 0;
  while (taken < kTaken) {
    const auto fault = host.peek();
    if (!fault || !host.take(*fault)) continue;
    ++taken;
    mixed += fault->call != call_by(fault->peer) ? 1 : 0;
  }
  goes_on = false;
  for (std::thread& queue : queues) queue.join();
  EXPECT_EQ(mixed, 0);
}

TEST(FaultWordsTest, TheFirstFaultStaysUntilItIsTaken) {
  DeviceWords words;
  SimBlock block(0, 1);
  FaultWords host(words);
  EXPECT_FALSE(host.has_fault());
  report_fault(block, &words, Outcome::mismatch, 3, 7, 1);
  report_fault(block, &words, Outcome::aborted, 2, 8, 2);
  ASSERT_TRUE(host.has_fault());
  const auto fault = host.peek();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault(), OperationFault::mismatch);
  EXPECT_EQ(fault->call, 7u);
  EXPECT_EQ(fault->peer, 3);
  EXPECT_TRUE(host.take(*fault));
  EXPECT_FALSE(host.take(*fault));
  EXPECT_FALSE(host.has_fault());
  report_fault(block, &words, Outcome::aborted, 2, 8, 2);
  EXPECT_EQ(host.peek()->call, 8u);
}

// Words repeat. Another thread may take a fault, and a kernel report the next one, before take().
TEST(FaultWordsTest, AFaultThatCameAfterTheOneSeenStays) {
  DeviceWords words;
  SimBlock block(0, 1);
  FaultWords host(words);
  for (const auto& [call, peer] : {std::pair(8, 3), std::pair(7, 2)}) {
    report_fault(block, &words, Outcome::mismatch, 3, 7, 1);
    const auto seen = host.peek();
    ASSERT_TRUE(seen.has_value());
    ASSERT_TRUE(host.take(*seen));
    report_fault(block, &words, Outcome::mismatch, peer, static_cast<std::uint64_t>(call), 1);
    EXPECT_FALSE(host.take(*seen));
    const auto newer = host.peek();
    ASSERT_TRUE(newer.has_value());
    EXPECT_EQ(newer->word, seen->word);
    EXPECT_EQ(newer->call, static_cast<std::uint64_t>(call));
    EXPECT_EQ(newer->peer, peer);
    EXPECT_TRUE(host.take(*newer));
    EXPECT_FALSE(host.has_fault());
  }
}

// A fault that is being written or taken is not visible.
TEST(FaultWordsTest, AClaimIsNoFault) {
  DeviceWords words;
  SimBlock block(0, 1);
  FaultWords host(words);
  ASSERT_TRUE(block.claim(&words.fault));
  EXPECT_FALSE(host.has_fault());
  EXPECT_FALSE(host.peek().has_value());
  report_fault(block, &words, Outcome::aborted, 1, 5, 1);
  EXPECT_EQ(words.fault_call, 0u);
}

TEST(FaultWordsTest, ALossReplacesWhatSaysLess) {
  DeviceWords words;
  SimBlock block(0, 1);
  FaultWords host(words);
  const auto reported = [&] { return host.peek()->call; };
  host.report_loss(9);
  EXPECT_EQ(host.peek()->peer, -1);
  host.report_loss(11);
  EXPECT_EQ(reported(), 9u);
  host.report_loss(5);
  EXPECT_EQ(reported(), 5u);
  EXPECT_TRUE(host.take(*host.peek()));
  report_fault(block, &words, Outcome::mismatch, 1, 2, 4);
  host.report_loss(6);
  EXPECT_EQ(reported(), 6u);
  EXPECT_TRUE(host.take(*host.peek()));
  const std::uint64_t message = flight::kMessageBit | 1;
  report_fault(block, &words, Outcome::aborted, 1, message, 0);
  host.report_loss(6);
  EXPECT_EQ(reported(), message);
}

}  // namespace
}  // namespace gantry::protocol
