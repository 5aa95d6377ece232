// The arrows of random traces, against a look at all events for each piece of device work.
#include "kernels/trace/trace_arrows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace gantry::trace {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

using Ends = std::pair<std::size_t, std::size_t>;

constexpr std::int64_t kEnd = 40;

// The clock has few moments, so that events begin and end together.
class RandomTrace {
 public:
  explicit RandomTrace(unsigned seed) : random_(seed) {
    for (std::uint64_t thread = 1; thread <= 3; ++thread) add_calls(thread, 0, kEnd, 0);
    for (int device = 0; device < 2; ++device) {
      for (int i = 0; i < 20; ++i) {
        TraceEvent work = event(device, 7, between(0, kEnd), between(0, 9));
        work.submission = {.thread = static_cast<std::uint64_t>(between(0, 4)),
                           .at_ns = between(-2, kEnd + 2)};
        events.push_back(std::move(work));
      }
    }
    for (int i = 0; i < 20; ++i) {
      TraceEvent counter =
          event(i % 2 - 1, static_cast<std::uint64_t>(between(1, 3)), between(0, kEnd), 0);
      counter.is_counter = true;
      counter.submission = {.thread = 1, .at_ns = between(0, kEnd)};
      events.push_back(std::move(counter));
    }
  }

  std::vector<TraceEvent> events;

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  static TraceEvent event(int device, std::uint64_t number, std::int64_t begin,
                          std::int64_t duration) {
    TraceEvent made;
    made.track = {.device = device, .number = number};
    made.begin_ns = begin;
    made.duration_ns = duration;
    return made;
  }
  // Calls of a thread in a row, each with calls inside.
  void add_calls(std::uint64_t thread, std::int64_t begin, std::int64_t end, int depth) {
    while (begin < end && depth < 4) {
      begin = between(begin, end);
      const std::int64_t call_end = between(begin, end);
      events.push_back(event(-1, thread, begin, call_end - begin));
      add_calls(thread, begin, call_end, depth + 1);
      begin = call_end + between(0, 3);
    }
  }

  std::mt19937 random_;
};

// The innermost call around the submission: of those that contain it, the one that begins last.
std::optional<std::size_t> host_of(const std::vector<TraceEvent>& events, const TraceEvent& work) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& call = events[i];
    const bool is_call = call.track.device < 0 && !call.is_counter;
    const std::int64_t after_begin = work.submission.at_ns - call.begin_ns;
    if (!is_call || call.track.number != work.submission.thread || after_begin < 0 ||
        after_begin > call.duration_ns) {
      continue;
    }
    if (!found || call.begin_ns >= events[*found].begin_ns) found = i;
  }
  return found;
}

TEST(TraceArrowsTest, RandomTracesAgainstAnOracle) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    const std::vector<TraceEvent> events = RandomTrace(seed).events;
    std::vector<Ends> expected;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].track.device < 0 || events[i].is_counter) continue;
      EXPECT_TRUE(stands_on_stream(events[i]));
      if (events[i].submission.thread == 0) continue;
      if (const auto host = host_of(events, events[i])) expected.emplace_back(*host, i);
    }
    std::vector<Ends> found;
    for (const Arrow& arrow : find_arrows(events)) found.emplace_back(arrow.host, arrow.device);
    EXPECT_TRUE(std::ranges::is_sorted(found, {}, &Ends::first)) << "seed " << seed;
    ASSERT_THAT(found, UnorderedElementsAreArray(expected)) << "seed " << seed;
  }
}

TEST(TraceArrowsTest, ATraceWithoutCallsOrWorkHasNone) {
  EXPECT_THAT(find_arrows({}), IsEmpty());
  std::vector<TraceEvent> events(2);
  events[0].track = {.device = -1, .number = 5};
  events[0].duration_ns = 10;
  EXPECT_THAT(find_arrows(std::span(events).first(1)), IsEmpty());
  events[1].track = {.device = 0, .number = 5};
  events[1].submission = {.thread = 5, .at_ns = 10};
  EXPECT_THAT(find_arrows(std::span(events).last(1)), IsEmpty());
  EXPECT_EQ(find_arrows(events).size(), 1U);
  events[1].submission.at_ns = 11;
  EXPECT_THAT(find_arrows(events), IsEmpty());
}

}  // namespace
}  // namespace gantry::trace
