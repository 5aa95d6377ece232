// The rules that a file of the Trace Event Format follows, so that viewers keep every event.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/text/json.hpp"
#include "tests/trace/trace_events.hpp"

namespace gantry::testing {

/// An arrow, by the names and categories of the events at both ends.
struct TracedArrow {
  std::string from;
  std::string to;
  bool operator==(const TracedArrow&) const = default;
};

/// The arrows of a file. An end belongs to the event of its line that begins last before it, in the
/// order of the file: that is how viewers attach it. Fails for an end in no event, for an arrow
/// without one of its ends, and for one that leads back in time.
inline std::vector<TracedArrow> expect_arrows(const std::filesystem::path& file) {
  struct End {
    std::string kind, name;
    std::int64_t time = 0;
  };
  using Line = std::pair<std::int64_t, std::int64_t>;
  const Json root = Json::parse(content_of(file));
  std::vector<const Json*> entries;
  const auto time_of = [](const Json& entry) {
    return std::llround(entry.at("ts").as<double>() * 1000);
  };
  for (const Json& entry : root.at("traceEvents").elements()) {
    if (entry.contains("ts")) entries.push_back(&entry);
  }
  std::ranges::stable_sort(entries, {}, [&](const Json* entry) { return time_of(*entry); });
  std::map<Line, std::vector<std::pair<std::string, std::int64_t>>> open;  // name and end
  std::map<std::uint64_t, std::vector<End>> ends;
  for (const Json* entry : entries) {
    const auto kind = entry->at("ph").as<std::string>();
    const Line line{entry->at("pid").as<std::int64_t>(), entry->at("tid").as<std::int64_t>()};
    const std::int64_t time = time_of(*entry);
    const auto name = entry->at("name").as<std::string>();
    if (kind == "X") {
      open[line].emplace_back(name, time + std::llround(entry->at("dur").as<double>() * 1000));
    } else if (kind == "s" || kind == "f") {
      const auto& around = open[line];
      const bool is_inside = !around.empty() && around.back().second >= time;
      EXPECT_TRUE(is_inside) << "an end '" << kind << "' of an arrow lies in no event";
      if (kind == "f") {
        EXPECT_EQ(entry->at("bp").as<std::string>(), "e");
      }
      ends[entry->at("id").as<std::uint64_t>()].push_back(
          {kind, is_inside ? around.back().first : "", time});
    } else {
      EXPECT_EQ(kind, "C") << name;
    }
  }
  std::vector<TracedArrow> arrows;
  for (const auto& [id, both] : ends) {
    EXPECT_EQ(both.size(), 2u) << "arrow " << id;
    if (both.size() != 2) continue;
    EXPECT_EQ(both[0].kind + both[1].kind, "sf") << "arrow " << id;
    EXPECT_LE(both[0].time, both[1].time) << "arrow " << id;
    arrows.push_back({both[0].name, both[1].name});
  }
  return arrows;
}

/// Checks nesting, arrows and names of a file. Returns its arrows.
inline std::vector<TracedArrow> expect_rules(const std::filesystem::path& file) {
  const std::vector<TracedEvent> events = traced_events(file);
  EXPECT_FALSE(events.empty());
  expect_nested(events);
  for (const TracedEvent& event : events) {
    EXPECT_FALSE(event.name.empty());
    for (const char* nameless : {"task", "functor", "_GLOBAL__N_", "anonymous"}) {
      EXPECT_EQ(event.name.find(nameless), std::string::npos) << event.name;
    }
  }
  return expect_arrows(file);
}

/// The number of events on lines of devices.
inline std::size_t count_device_events(const std::vector<TracedEvent>& events) {
  return static_cast<std::size_t>(
      std::ranges::count_if(events, [](const TracedEvent& event) { return !event.is_on_host(); }));
}

}  // namespace gantry::testing
