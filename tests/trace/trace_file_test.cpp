#include "kernels/trace/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/kernels/trace.hpp>

#include "tests/support/temporary_folder.hpp"
#include "tests/trace/trace_events.hpp"
#include "tests/trace/trace_rules.hpp"

namespace gantry::trace {
namespace {

using gantry::testing::expect_nested;
using gantry::testing::traced_events;
using gantry::testing::TracedArrow;
using gantry::testing::TracedEvent;
using ::testing::ElementsAre;

using Times = std::tuple<std::string, std::int64_t, std::int64_t>;  // name, begin, end

TraceEvent kernel(std::string name, std::int64_t begin, std::int64_t end, Track track = {0, 7}) {
  return {.name = std::move(name),
          .category = "kernel",
          .track = track,
          .begin_ns = begin,
          .duration_ns = end - begin};
}

class TraceFileTest : public ::testing::Test {
 protected:
  // The times of the file of these events, which must nest.
  std::vector<Times> written(std::vector<TraceEvent> events) const {
    write_trace(path, {}, {.events = std::move(events)});
    return times_of(path);
  }
  static std::vector<Times> times_of(const std::filesystem::path& file) {
    const std::vector<TracedEvent> events = traced_events(file);
    expect_nested(events);
    std::vector<Times> times;
    for (const TracedEvent& event : events) times.emplace_back(event.name, event.begin, event.end);
    return times;
  }

  const gantry::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "trace.json";
};

TEST_F(TraceFileTest, AnOverlappedKernelBeginsWithTheEndOfItsPredecessor) {
  // A profiler reports kernels in any order.
  EXPECT_THAT(written({kernel("c", 3500, 5000), kernel("a", 1000, 2500), kernel("b", 1500, 4000)}),
              ElementsAre(Times("a", 1000, 2500), Times("b", 2500, 4000), Times("c", 4000, 5000)));
}

TEST_F(TraceFileTest, AKernelThatOverlapsSeveralFollowsTheLastOfThem) {
  EXPECT_THAT(written({kernel("a", 1000, 2500), kernel("b", 1100, 4000), kernel("c", 1200, 5000)}),
              ElementsAre(Times("a", 1000, 2500), Times("b", 2500, 4000), Times("c", 4000, 5000)));
}

TEST_F(TraceFileTest, AKernelNeverEndsBeforeItBegins) {
  EXPECT_THAT(written({kernel("a", 1000, 2500), kernel("b", 1100, 4000), kernel("c", 1200, 2000)}),
              ElementsAre(Times("a", 1000, 2500), Times("b", 2500, 4000), Times("c", 2500, 2500)));
}

TEST_F(TraceFileTest, AKernelInsideAnotherKeepsItsTimes) {
  EXPECT_THAT(written({kernel("a", 1000, 9000), kernel("b", 2000, 3000), kernel("c", 2500, 4000),
                       kernel("d", 8000, 9500)}),
              ElementsAre(Times("a", 1000, 9000), Times("b", 2000, 3000), Times("c", 3000, 4000),
                          Times("d", 9000, 9500)));
}

TEST_F(TraceFileTest, OtherLinesOverlap) {
  EXPECT_THAT(
      written({kernel("stream", 1000, 2000), kernel("other stream", 1500, 3000, {0, 8}),
               kernel("other device", 1600, 4000, {1, 7}), kernel("host", 1700, 5000, {-1, 7})}),
      ElementsAre(Times("stream", 1000, 2000), Times("other stream", 1500, 3000),
                  Times("other device", 1600, 4000), Times("host", 1700, 5000)));
}

TEST_F(TraceFileTest, AMergedFileNestsToo) {
  write_trace(path, {}, {.events = {kernel("a", 1000, 2500), kernel("b", 1500, 4000)}});
  const std::filesystem::path second = folder / "second.json";
  TraceOrigin origin;
  origin.rank = 1;
  origin.start_unix_ns = 500;
  write_trace(second, origin, {.events = {kernel("c", 1000, 2500), kernel("d", 1500, 4000)}});
  const std::vector<std::filesystem::path> parts{path, second};
  merge(parts, folder / "merged.json");
  EXPECT_THAT(times_of(folder / "merged.json"),
              ElementsAre(Times("a", 1000, 2500), Times("c", 1500, 3000), Times("b", 2500, 4000),
                          Times("d", 3000, 4500)));
}

TraceEvent on_host(std::string name, std::int64_t begin, std::int64_t end,
                   std::uint64_t thread = 3) {
  return kernel(std::move(name), begin, end, {-1, thread});
}
TraceEvent submitted(std::string name, std::int64_t at, std::uint64_t thread = 3) {
  static std::int64_t begin = 10'000;
  TraceEvent event = kernel(std::move(name), begin, begin + 50);
  begin += 100;
  event.submission = {.thread = thread, .at_ns = at};
  return event;
}

TEST_F(TraceFileTest, AnArrowBeginsAtTheInnermostEventAroundTheSubmission) {
  // Events are added when they end.
  written({on_host("inside", 1100, 1200), on_host("outer", 1000, 2000), on_host("next", 2000, 2100),
           on_host("other thread", 1000, 1300, 4), submitted("a", 1150), submitted("b", 1500),
           submitted("c", 1200), submitted("d", 2100), submitted("e", 1150, 4)});
  EXPECT_THAT(
      gantry::testing::expect_rules(path),
      ElementsAre(TracedArrow{"outer", "b"}, TracedArrow{"inside", "a"}, TracedArrow{"inside", "c"},
                  TracedArrow{"next", "d"}, TracedArrow{"other thread", "e"}));
}

TEST_F(TraceFileTest, OfEventsWithEqualTimesTheFirstOneAddedIsTheInnermost) {
  written({on_host("inside", 1000, 1000), on_host("outer", 1000, 1000), submitted("a", 1000)});
  EXPECT_THAT(gantry::testing::expect_rules(path), ElementsAre(TracedArrow{"inside", "a"}));
}

TEST_F(TraceFileTest, WorkThatWasSubmittedOutsideOfEventsHasNoArrow) {
  written({on_host("early", 1000, 1100), submitted("a", 999), submitted("b", 1101),
           submitted("c", 1050, 5), submitted("d", 1050, 0)});
  EXPECT_THAT(gantry::testing::expect_rules(path), ElementsAre());
}

TEST_F(TraceFileTest, AnArrowFollowsTheNewBeginOfAnOverlappedKernel) {
  TraceEvent late = kernel("late", 1500, 4000);
  late.submission = {.thread = 3, .at_ns = 1000};
  written({on_host("call", 900, 1100), kernel("first", 1000, 2500), std::move(late)});
  EXPECT_THAT(gantry::testing::expect_rules(path), ElementsAre(TracedArrow{"call", "late"}));
}

}  // namespace
}  // namespace gantry::trace
