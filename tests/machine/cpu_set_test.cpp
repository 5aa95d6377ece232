#include <gantry/machine/cpu_set.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <sstream>
#include <string>
#include <thread>

#include <gantry/core/error.hpp>

namespace gantry::machine {
namespace {

using ::testing::ElementsAre;

TEST(CpuSetTest, ListsAreReadAndWritten) {
  EXPECT_THAT(CpuSet::parse("8,0-3,2").cpus(), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_EQ(CpuSet::parse("8,0-3,2").str(), "0-3,8");
  EXPECT_EQ(CpuSet::parse("0,1,5\n").str(), "0-1,5");
  EXPECT_TRUE(CpuSet::parse("").empty());
  EXPECT_EQ((CpuSet{3, 1, 3}).str(), "1,3");
  std::ostringstream text;
  text << CpuSet{7};
  EXPECT_EQ(text.str(), "7");
}

TEST(CpuSetTest, MalformedListsAreErrors) {
  for (const char* const list :
       {"a", "1-", "-1", "3-1", "1,", ",1", "1,,2", "1 2", "65536", "0x1"}) {
    try {
      (void)CpuSet::parse(list);
      ADD_FAILURE() << "accepted: " << list;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                "CpuSet: expected a list such as 0-3,8, but got '" + std::string(list) + "'");
    }
  }
  EXPECT_THROW(CpuSet{-1}, InvalidArgument);
}

TEST(CpuSetTest, SetsAreCombined) {
  const CpuSet a = CpuSet::parse("0-3");
  const CpuSet b = CpuSet::parse("2-5");
  EXPECT_EQ((a & b).str(), "2-3");
  EXPECT_EQ((a | b).str(), "0-5");
  EXPECT_EQ((a - b).str(), "0-1");
  EXPECT_TRUE((a & b).is_subset_of(a));
  EXPECT_FALSE(a.is_subset_of(b));
  EXPECT_TRUE(a.intersects(b));
  EXPECT_FALSE((a - b).intersects(b));
  EXPECT_TRUE(a.contains(3));
  EXPECT_FALSE(a.contains(4));
  EXPECT_EQ(a.size(), 4U);
}

TEST(CpuSetTest, TheCallingThreadsMaskIsRead) {
  const CpuSet before = current_cpus();
  ASSERT_FALSE(before.empty());
  std::thread([&] {
    const int cpu = before.cpus().back();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(cpu), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_THAT(current_cpus().cpus(), ElementsAre(cpu));
  }).join();
  EXPECT_EQ(current_cpus(), before);
}

}  // namespace
}  // namespace gantry::machine
