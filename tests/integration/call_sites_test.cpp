// Who allocates, as a user sees it: in the text of an error, in snapshots and on the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "core/text/json.hpp"
#include "tests/snapshots/snapshot_samples.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using memory::BlockInfo;
using memory::BlockState;
using memory::Frame;
using memory::SegmentInfo;
using memory::Snapshot;
using memory::TraceAction;
using memory::TraceEntry;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

constexpr std::string_view kNode = GANTRY_TEST_NODE;

// "layer_forward" from "(anonymous namespace)::layer_forward(gantry::Tensor const&)".
std::string short_name(const Frame& frame) {
  std::string name = frame.name;
  if (const auto at = name.find("::"); name.starts_with("(anonymous") && at != std::string::npos) {
    name.erase(0, at + 2);
  }
  return name.substr(0, name.find('('));
}

class CallSitesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
    GANTRY_REQUIRE_DEVICES(1);
    outcome_ = run_command(
        {.argv = {GANTRY_TEST_PROGRAM_DIR "/profiled_program", (folder_ / "").string()}});
    ASSERT_EQ(outcome_.exit_code, 0) << outcome_.describe();
    std::istringstream lines(outcome_.out);
    std::getline(lines, error_);
    std::string name;
    for (int line = 0; lines >> name >> line;) lines_[name] = line;
    ASSERT_EQ(lines_.size(), 3U) << outcome_.describe();
  }

  /// What the page's own script makes of the page.
  Json page_model(const std::string& page) {
    const Outcome outcome = run_command(
        {.argv = {std::string(kNode), GANTRY_TEST_PAGE_MODEL, GANTRY_TEST_VIEWER, page}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    return Json::parse(outcome.out);
  }

  testing::TemporaryFolder folder_;
  Outcome outcome_;
  std::string error_;                 ///< the error's text
  std::map<std::string, int> lines_;  ///< where each of the program's functions allocates
};

TEST_F(CallSitesTest, TheErrorNamesTheProgramsFunctionsAndLines) {
  EXPECT_THAT(error_, HasSubstr("CUDA out of memory."));
  const auto at = error_.find(" Most is used by: ");
  ASSERT_NE(at, std::string::npos) << error_;
  const std::string most = error_.substr(at);
  for (const auto& [name, line] : lines_) {
    const auto place = most.find("profiled_program.cpp:" + std::to_string(line) + ")");
    ASSERT_NE(place, std::string::npos) << name << ": " << most;
    // "4.00 MiB from layer_forward(…) (path/profiled_program.cpp:21)"
    const auto begin = most.rfind(" from ", place);
    EXPECT_THAT(most.substr(begin, place - begin), HasSubstr(name));
  }
  for (const char* inner : {"storage.cpp", "factories.cpp", "std_function.h", "invoke.h"}) {
    EXPECT_THAT(most, Not(HasSubstr(inner)));
  }
}

TEST_F(CallSitesTest, EveryBlockAndEventOfASnapshotHasTheProgramsPlace) {
  const Snapshot snapshot = memory::load_snapshot(folder_ / "run.json");
  std::map<std::string, std::size_t> blocks;
  for (const SegmentInfo& segment : snapshot.segments) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::inactive) continue;
      const Frame* const frame = block.frames.call_site();
      ASSERT_NE(frame, nullptr);
      EXPECT_FALSE(frame->is_internal);
      EXPECT_THAT(frame->filename, HasSubstr("profiled_program.cpp"));
      const std::string name = short_name(*frame);
      if (lines_.contains(name)) {
        EXPECT_EQ(frame->line, lines_[name]) << name;
        ++blocks[name];
      }
    }
  }
  EXPECT_EQ(blocks.size(), lines_.size());
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
    if (entry.action != TraceAction::alloc) continue;
    const Frame* const frame = entry.frames.call_site();
    ASSERT_NE(frame, nullptr);
    EXPECT_THAT(frame->filename, HasSubstr("profiled_program.cpp")) << frame->name;
    // The allocation itself is gantry's, and the snapshot says so.
    EXPECT_TRUE(entry.frames.front().is_internal) << entry.frames.front().name;
  }
}

TEST_F(CallSitesTest, ThePageColoursByTheProgramsPlaces) {
  if (kNode.empty()) GTEST_SKIP() << "Node.js was not found";
  const Json devices = page_model((folder_ / "run.html").string());
  std::map<std::string, std::string> places;
  for (const Json& site : devices.at(0).at("sites").elements()) {
    places[site.at("label").as<std::string>()] = site.at("place").as<std::string>();
    EXPECT_THAT(site.at("place").as<std::string>(), HasSubstr("profiled_program.cpp:"));
  }
  for (const auto& [name, line] : lines_) {
    EXPECT_THAT(places[name], HasSubstr("profiled_program.cpp:" + std::to_string(line))) << name;
  }
}

// Looking up names takes long; what is marked afterwards must not stretch the axis.
TEST_F(CallSitesTest, TheTimeAxisEndsWithTheLastChange) {
  if (kNode.empty()) GTEST_SKIP() << "Node.js was not found";
  const auto entry = [](TraceAction action, std::int64_t time_us) {
    return TraceEntry{.action = action, .address = 0x1000, .bytes = 512, .time_us = time_us};
  };
  Snapshot snapshot;
  snapshot.device_traces.push_back(
      {entry(TraceAction::alloc, 1'000), entry(TraceAction::free_requested, 1'035),
       entry(TraceAction::free_completed, 1'070), entry(TraceAction::oom, 1'075),
       entry(TraceAction::snapshot, 900'000)});
  // The pause before the last changes takes most of the axis.
  snapshot.device_traces.push_back({entry(TraceAction::alloc, 1'000),
                                    entry(TraceAction::free_requested, 700'000),
                                    entry(TraceAction::free_completed, 700'001)});
  save_snapshot(snapshot, folder_ / "late.html");
  const Json devices = page_model((folder_ / "late.html").string());
  EXPECT_EQ(devices.at(0).at("end"), 70);
  EXPECT_EQ(devices.at(0).at("axis"), "time");
  EXPECT_EQ(devices.at(0).at("times").elements().back(), 899'000);
  EXPECT_EQ(devices.at(1).at("end"), 699'001);
  EXPECT_EQ(devices.at(1).at("axis"), "event");
}

}  // namespace
}  // namespace gantry
