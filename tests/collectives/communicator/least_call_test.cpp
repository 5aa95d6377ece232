#include "collectives/communicator/call_ledger.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace gantry {
namespace {

TEST(LeastCallTest, KeepsTheLeastNumber) {
  LeastCall least;
  EXPECT_EQ(least.get(), UINT64_MAX);
  for (const std::uint64_t call : {7, 9, 3, 5}) least.lower(call);
  EXPECT_EQ(least.get(), 3U);
}

TEST(LeastCallTest, ReportsAtOneTimeLoseNoNumber) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 20'000;
  std::optional<LeastCall> least;
  int lost = 0;
  const auto check = [&]() noexcept {
    if (least && least->get() != 1) ++lost;
    least.emplace();
  };
  std::barrier round(kThreads, check);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      round.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        // From both ends, so that a late thread has a greater number.
        for (int call = 8; call > 0; --call) {
          least->lower(static_cast<std::uint64_t>(1 + (call + thread) % 8));
        }
        round.arrive_and_wait();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace gantry
