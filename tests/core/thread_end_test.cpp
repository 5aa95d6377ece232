#include "core/thread_end.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What ended, in this order.
std::vector<int>& ended() {
  static std::vector<int> list;
  return list;
}

template <int kNumber>
void end() noexcept {
  ended().push_back(kNumber);
}

struct ThreadLocalObject {
  ~ThreadLocalObject() {
    ended().push_back(2);
    at_thread_end(end<3>);
  }
};

TEST(ThreadEndTest, FunctionsRunInTheOrderOfThreadLocalObjects) {
  ended().clear();
  std::thread([] {
    at_thread_end(end<5>);
    static thread_local ThreadLocalObject object;
    static_cast<void>(object);
    at_thread_end(end<1>);
    EXPECT_THAT(ended(), IsEmpty());
  }).join();
  EXPECT_THAT(ended(), ElementsAre(1, 2, 3, 5));
}

TEST(ThreadEndTest, EachThreadHasItsOwn) {
  ended().clear();
  std::thread([] { at_thread_end(end<1>); }).join();
  std::thread([] {}).join();
  std::thread([] {
    at_thread_end(end<2>);
    at_thread_end(end<2>);
  }).join();
  EXPECT_THAT(ended(), ElementsAre(1, 2, 2));
}

}  // namespace
}  // namespace gantry
