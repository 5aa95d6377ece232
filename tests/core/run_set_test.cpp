// Sets of runs against a set of bytes.
#include "core/run_set.hpp"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace gantry {
namespace {

constexpr std::size_t kBytes = 64;
using Bytes = std::bitset<kBytes>;

Bytes bytes_of(Run run) {
  Bytes bytes;
  for (std::size_t i = run.begin; i < run.end; ++i) bytes.set(i);
  return bytes;
}

Run any_run(std::mt19937& random) {
  const std::size_t begin = random() % kBytes;
  return {begin, begin + 1 + random() % (kBytes - begin)};
}

TEST(RunSetTest, HasTheBytesThatWereAddedAndNotRemoved) {
  std::mt19937 random(1);
  RunSet set;
  Bytes model;
  for (int step = 0; step < 20000; ++step) {
    const gantry::Run run = any_run(random);
    if ((model & bytes_of(run)).none()) {
      set.add(run);
      model |= bytes_of(run);
    } else {
      const gantry::Run part = set.first_inside(run);
      ASSERT_GT(part.bytes(), 0u);
      ASSERT_EQ(bytes_of(part) & bytes_of(run) & model, bytes_of(part));
      ASSERT_TRUE((bytes_of({run.begin, part.begin}) & model).none()) << "it is not the first";
      set.remove(part);
      model &= ~bytes_of(part);
    }
    ASSERT_EQ(set.bytes(), model.count());
    ASSERT_EQ(set.empty(), model.none());
    if (!set.empty()) {
      ASSERT_TRUE(model.test(set.last().end - 1));
      ASSERT_TRUE((bytes_of({set.last().end, kBytes}) & model).none());
    }
  }
}

TEST(RunSetTest, FindsNothingBesideItsRuns) {
  RunSet set;
  EXPECT_EQ(set.first_inside({0, 10}).bytes(), 0u);
  set.add({4, 6});
  EXPECT_EQ(set.first_inside({0, 4}).bytes(), 0u);
  EXPECT_EQ(set.first_inside({6, 10}).bytes(), 0u);
  EXPECT_EQ(set.first_inside({5, 5}).bytes(), 0u);
  EXPECT_EQ(set.first_inside({5, 10}), (gantry::Run{5, 6}));
  EXPECT_EQ(set.last(), (gantry::Run{4, 6}));
}

}  // namespace
}  // namespace gantry
