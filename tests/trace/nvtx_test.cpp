#include <gantry/streams/nvtx.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(NvtxTest, AProfilerSeesMarksRangesAndOperations) {
  GANTRY_REQUIRE_DEVICES(1);
  const gantry::testing::TemporaryFolder folder;
  const gantry::testing::Outcome outcome = gantry::testing::run_command(
      {.argv = {GANTRY_TEST_PROGRAM_DIR "/nvtx_program"},
       .environment = {{"NVTX_INJECTION64_PATH", GANTRY_TEST_NVTX_RECORDER},
                       {"GANTRY_TEST_NVTX_LOG", (folder / "calls").string()}}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::istringstream lines(gantry::testing::content_of(folder / "calls"));
  std::vector<std::string> calls;
  for (std::string line; std::getline(lines, line);) calls.push_back(line);
  EXPECT_THAT(calls, ElementsAre("mark begin", "push outer", "push inner", "pop ", "pop ",
                                 "start free", "end 4711", "push add f32[2, 3] f32[2, 3] f32[2, 3]",
                                 "pop ", HasSubstr("push sum f32[2"), "pop ", "mark end"));
}

TEST(NvtxTest, DepthsCountPerThread) {
  EXPECT_EQ(nvtx::range_push("a"), 0);
  std::thread([] {
    EXPECT_EQ(nvtx::range_push("b"), 0);
    EXPECT_EQ(nvtx::range_pop(), 0);
    EXPECT_THROW(nvtx::range_pop(), InvalidArgument);
  }).join();
  EXPECT_EQ(nvtx::range_push("c"), 1);
  EXPECT_EQ(nvtx::range_pop(), 1);
  EXPECT_EQ(nvtx::range_pop(), 0);
}

TEST(NvtxTest, RefusesBadArguments) {
  const std::string bad("a\0b", 3);
  EXPECT_THAT([&] { nvtx::mark(bad); },
              ThrowsMessage<InvalidArgument>(
                  "mark: expected a message without null characters, but got one at position 1"));
  EXPECT_THROW(nvtx::range_push(bad), InvalidArgument);
  EXPECT_THROW(nvtx::Range{bad}, InvalidArgument);
  EXPECT_THROW((void)nvtx::range_start(bad), InvalidArgument);
  EXPECT_THAT(
      [] { nvtx::range_end(nvtx::RangeId::none); },
      ThrowsMessage<InvalidArgument>("range_end: expected an open range, but got number 0"));
  EXPECT_THROW(nvtx::range_pop(), InvalidArgument) << "no range was begun";
}

TEST(NvtxTest, RangesMayEndOnOtherThreads) {
  const nvtx::RangeId id = nvtx::range_start("long");
  std::thread([id] { nvtx::range_end(id); }).join();
  EXPECT_THROW(nvtx::range_end(id), InvalidArgument);
}

TEST(NvtxTest, OperationsAreAnnotatedOnRequest) {
  EXPECT_FALSE(nvtx::annotates_ops());
  nvtx::annotate_ops();
  EXPECT_TRUE(nvtx::annotates_ops());
  nvtx::annotate_ops(false);
  EXPECT_FALSE(nvtx::annotates_ops());
}

}  // namespace
}  // namespace gantry
