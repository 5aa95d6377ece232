// The events of a trace's file, and the rule that the events of a line nest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/text/json.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::testing {

struct TracedEvent {
  std::string name;
  std::string category;
  std::int64_t begin = 0;  // in ns
  std::int64_t end = 0;
  std::pair<std::int64_t, std::int64_t> line;  // process and thread
  Json arguments;

  [[nodiscard]] bool is_on_host() const { return line.first % 1000 == 0; }
  [[nodiscard]] bool contains(const TracedEvent& other) const {
    return line == other.line && begin <= other.begin && other.end <= end;
  }
};

/// The events with a duration, by their begin; of two that begin together the longer one is first.
inline std::vector<TracedEvent> traced_events(const std::filesystem::path& file) {
  const Json root = Json::parse(content_of(file));
  const auto nanoseconds = [](const Json& us) { return std::llround(us.as<double>() * 1000); };
  std::vector<TracedEvent> events;
  for (const Json& json : root.at("traceEvents").elements()) {
    if (json.at("ph").as<std::string>() != "X") continue;
    TracedEvent event;
    event.name = json.at("name").as<std::string>();
    event.category = json.at("cat").as<std::string>();
    event.begin = nanoseconds(json.at("ts"));
    event.end = event.begin + nanoseconds(json.at("dur"));
    event.line = {json.at("pid").as<std::int64_t>(), json.at("tid").as<std::int64_t>()};
    if (const Json* arguments = json.find("args")) event.arguments = *arguments;
    events.push_back(std::move(event));
  }
  std::ranges::stable_sort(events, [](const TracedEvent& a, const TracedEvent& b) {
    return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
  });
  return events;
}

/// Fails for each event that begins inside another one of its line and ends after it.
inline void expect_nested(const std::vector<TracedEvent>& events) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const TracedEvent*>> open;
  for (const TracedEvent& event : events) {
    EXPECT_GE(event.begin, 0) << event.name;
    std::vector<const TracedEvent*>& around = open[event.line];
    while (!around.empty() && around.back()->end <= event.begin) around.pop_back();
    if (!around.empty()) {
      EXPECT_LE(event.end, around.back()->end)
          << event.category << " " << event.name << " crosses the end of "
          << around.back()->category << " " << around.back()->name;
    }
    around.push_back(&event);
  }
}

/// The events inside `outer` that lie in no other event inside it.
inline std::vector<TracedEvent> children_of(const TracedEvent& outer,
                                            const std::vector<TracedEvent>& events) {
  std::vector<TracedEvent> children;
  for (const TracedEvent& event : events) {
    const bool is_outer = event.category == outer.category && event.name == outer.name &&
                          event.begin == outer.begin && event.end == outer.end;
    if (is_outer || !outer.contains(event)) continue;
    if (!children.empty() && children.back().contains(event)) continue;
    children.push_back(event);
  }
  return children;
}

}  // namespace gantry::testing
