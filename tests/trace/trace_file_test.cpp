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

namespace gantry::trace {
namespace {

using gantry::testing::expect_nested;
using gantry::testing::traced_events;
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

}  // namespace
}  // namespace gantry::trace
