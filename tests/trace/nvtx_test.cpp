#include <gantry/streams/nvtx.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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

TEST(NvtxTest, AProfilerThatGetsNoCallsIsNamedOnce) {
  GANTRY_REQUIRE_DEVICES(1);
  const gantry::testing::TemporaryFolder folder;
  const auto run = [&](const std::string& library) {
    return gantry::testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/nvtx_program"},
                                         .environment = {{"NVTX_INJECTION64_PATH", library}}});
  };
  const std::string missing = (folder / "missing.so").string();
  gantry::testing::Outcome outcome = run(missing);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::string start = "nvtx: failed to load the profiler of NVTX_INJECTION64_PATH, ";
  const auto first = outcome.err.find(start + missing + ": ");
  ASSERT_NE(first, std::string::npos) << outcome.describe();
  EXPECT_EQ(outcome.err.find(start, first + 1), std::string::npos) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("No such file or directory; it gets no ranges"));
  outcome = run(GANTRY_TEST_OTHER_LIBRARY);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err,
              HasSubstr("expected a function InitializeInjectionNvtx2 that returns 1"));
  EXPECT_EQ(run("").err, "");
}

// NVTX would load it from the current directory, or after another user has changed it.
TEST(NvtxTest, AProfilerThatOthersChooseIsNotLoaded) {
  GANTRY_REQUIRE_DEVICES(1);
  const gantry::testing::TemporaryFolder folder;
  const std::filesystem::path copy = folder / "profiler.so";
  std::filesystem::copy_file(GANTRY_TEST_NVTX_RECORDER, copy);
  const auto expect_refusal = [&](const std::string& library, const std::string& why) {
    const gantry::testing::Outcome outcome = gantry::testing::run_command(
        {.argv = {"sh", "-c",
                  "cd '" + folder.path().string() + "' && exec '" +
                      GANTRY_TEST_PROGRAM_DIR "/nvtx_program'"},
         .environment = {{"NVTX_INJECTION64_PATH", library},
                         {"GANTRY_TEST_NVTX_LOG", (folder / "calls").string()}}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("NVTX_INJECTION64_PATH, " + library + ": " + why +
                                       "; it gets no ranges"));
    EXPECT_FALSE(std::filesystem::exists(folder / "calls")) << library;
  };
  expect_refusal("./profiler.so", "expected an absolute path");
  std::filesystem::permissions(copy, std::filesystem::perms(0757));
  expect_refusal(copy.string(), "others may write it (mode 757)");
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
