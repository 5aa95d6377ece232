// Functions that are registered, and called without a lock.
#include "core/callbacks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CallbacksTest : public ::testing::Test {
 protected:
  std::vector<int> results() const {
    std::vector<int> all;
    callbacks.for_each([&](const auto& function) { all.push_back(function()); });
    return all;
  }

  Callbacks<std::function<int()>> callbacks;
  int results_of_last = 0;
};

TEST_F(CallbacksTest, TheyAreCalledInTheOrderInWhichTheyWereAdded) {
  EXPECT_THAT(results(), IsEmpty());
  for (int i = 0; i < 4; ++i) callbacks.add([i] { return i; });
  EXPECT_THAT(results(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(results(), ElementsAre(0, 1, 2, 3));
}

TEST_F(CallbacksTest, OneMayAddAnother) {
  callbacks.add([this] {
    if (results_of_last == 0) callbacks.add([this] { return ++results_of_last; });
    return 10;
  });
  EXPECT_THAT(results(), ElementsAre(10, 1));
  EXPECT_THAT(results(), ElementsAre(10, 2));
}

TEST_F(CallbacksTest, NoneThatThreadsAddIsLost) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < 100; ++i) {
        callbacks.add([thread, i] { return thread * 100 + i; });
        (void)results();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> all = results();
  ASSERT_EQ(all.size(), 400U);
  // Each thread's own are in its order.
  std::vector<int> next{0, 100, 200, 300};
  for (const int one : all) EXPECT_EQ(one, next[static_cast<std::size_t>(one / 100)]++);
}

}  // namespace
}  // namespace gantry
