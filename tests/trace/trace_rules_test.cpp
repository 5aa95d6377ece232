// Traces of real programs keep the rules of the Trace Event Format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gantry/kernels/trace.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/trace/trace_rules.hpp"

namespace gantry::testing {
namespace {

using ::testing::Contains;

class TraceRulesTest : public DeviceTest {
 protected:
  const TemporaryFolder folder;
};

TEST_F(TraceRulesTest, AJobOfFourRanksKeepsThem) {
  GANTRY_REQUIRE_DEVICES(4);
  constexpr int kRanks = 4;
  {
    RankProcesses ranks({.ranks = kRanks,
                         .argv = {GANTRY_TEST_PROGRAM_DIR "/traced_job"},
                         .environment = {{"GANTRY_TRACE", (folder / "{rank}.json").string()}},
                         .is_simulated = platform() == Platform::simulated});
    for (int rank = 0; rank < kRanks; ++rank) {
      const Outcome outcome = ranks[rank].wait();
      ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    }
  }
  std::vector<std::filesystem::path> parts;
  std::size_t arrows_of_parts = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    parts.push_back(folder / (std::to_string(rank) + ".json"));
    const std::vector<TracedArrow> arrows = expect_rules(parts.back());
    arrows_of_parts += arrows.size();
    if (platform() != Platform::simulated) continue;  // GPUs have names of their own
    for (const TracedArrow& arrow : std::vector<TracedArrow>{{"all_reduce", "all_reduce"},
                                                             {"all_gather", "all_gather"},
                                                             {"send_recv", "send_recv"},
                                                             {"group", "group"},
                                                             {"parallel_for", "Twice"},
                                                             {"launch", "Clear"},
                                                             {"copy_from", "memcpy"},
                                                             {"copy_to", "memcpy"},
                                                             {"replay", "add"},
                                                             {"replay", "mul"}}) {
      EXPECT_THAT(arrows, Contains(arrow))
          << "rank " << rank << ": " << arrow.from << " to " << arrow.to;
    }
    // Three replays of two graphs, with 2 and with 3 kernels.
    EXPECT_EQ(std::ranges::count(arrows, "replay", &TracedArrow::from), 15);
  }
  trace::merge(parts, folder / "all.json");
  EXPECT_EQ(expect_rules(folder / "all.json").size(), arrows_of_parts);
}

// The programs of the tour that need no second process.
TEST_F(TraceRulesTest, ProgramsOfTheTourKeepThem) {
  GANTRY_REQUIRE_SIM();
  int programs = 0;
  for (const char* name :
       {"streams_and_events", "copy_compute_overlap", "graph_with_static_buffers",
        "in_place_and_memory", "leak_hunt", "two_devices", "random_state", "own_kernel",
        "exchange_tensors", "peer_operands", "mixed_indexing", "device_contexts"}) {
    const std::filesystem::path program = std::filesystem::path(GANTRY_TEST_TOUR_DIR) / name;
    if (!std::filesystem::exists(program)) continue;
    SCOPED_TRACE(name);
    ++programs;
    const std::filesystem::path file = folder / (std::string(name) + ".json");
    const Outcome outcome = run_command(
        {.argv = {program.string()},
         .environment = {{"GANTRY_TRACE", file.string()}, {"GANTRY_SIM_DEVICES", "2"}}});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    // A program of one process submits all its work by calls that have events.
    EXPECT_EQ(expect_rules(file).size(), count_device_events(traced_events(file)));
  }
  if (programs == 0) GTEST_SKIP() << "this build has no examples";
}

}  // namespace
}  // namespace gantry::testing
