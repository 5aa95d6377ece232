#include "kernels/trace/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <ostream>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/kernels/trace.hpp>
#include <gantry/memory/snapshot.hpp>

#include "core/files/atomic_file.hpp"
#include "core/files/regular_file.hpp"
#include "core/stacks/call_site.hpp"
#include "kernels/trace/trace_arrows.hpp"

namespace gantry::trace {
namespace {

constexpr int kVersion = 2;
// Rank r has the processes r * kPerRank (its host threads) and r * kPerRank + 1 + device.
constexpr std::int64_t kPerRank = 1000;

std::int64_t process_of(int rank, const Track& track) { return rank * kPerRank + 1 + track.device; }

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

std::string call_site_text(std::uint32_t call_site) {
  const memory::Frames frames = stacks::frames_of(call_site);
  const memory::Frame* const frame = frames.call_site();
  if (frame == nullptr) return {};
  return fmt::format("{} ({}:{})", frame->name, frame->filename, frame->line);
}

Json metadata(const char* kind, std::int64_t pid, std::int64_t tid, const char* key, Json value) {
  return Json::object({{"name", kind},
                       {"ph", "M"},
                       {"pid", pid},
                       {"tid", tid},
                       {"args", Json::object({{key, std::move(value)}})}});
}

// Where the line of an event is.
Json place_of(const TraceEvent& event, const TraceOrigin& origin, Json json) {
  json.append("pid", process_of(origin.rank, event.track));
  json.append("tid", event.is_counter ? std::uint64_t{0} : event.track.number);
  return json;
}

Json event_json(const TraceEvent& event, const TraceOrigin& origin) {
  Json json = Json::object({{"name", event.name},
                            {"cat", event.category},
                            {"ph", event.is_counter ? "C" : "X"},
                            {"ts", microseconds(event.begin_ns - origin.start_ns)}});
  if (!event.is_counter) json.append("dur", microseconds(event.duration_ns));
  json = place_of(event, origin, std::move(json));
  Json arguments(event.arguments);
  if (std::string site = call_site_text(event.call_site); !site.empty()) {
    arguments.append("call site", std::move(site));
  }
  if (arguments.size() != 0) json.append("args", std::move(arguments));
  return json;
}

// Note [Arrows of traces]
// An arrow has two entries, "s" and "f", with one id. Viewers attach an entry to the event that
// begins last before it on its line, in the order of the file. So an end of an arrow has the time
// of its event's begin, and follows that event directly. Ids differ between the ranks of a merged
// trace.
Json arrow_json(std::size_t number, bool is_end, const TraceEvent& event,
                const TraceOrigin& origin) {
  Json json = Json::object({{"name", "submit"},
                            {"cat", "submit"},
                            {"ph", is_end ? "f" : "s"},
                            {"id", (static_cast<std::uint64_t>(origin.rank) << 32) + number},
                            {"ts", microseconds(event.begin_ns - origin.start_ns)}});
  if (is_end) json.append("bp", "e");
  return place_of(event, origin, std::move(json));
}

// Writes values one after the other, with the commas between them.
class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) {}
  void add(const Json& event) {
    out_ << (is_first_ ? "\n" : ",\n") << event.dump();
    is_first_ = false;
  }

 private:
  std::ostream& out_;
  bool is_first_ = true;
};

void add_events(EventList& list, const TraceOrigin& origin, const std::vector<TraceEvent>& events) {
  const std::vector<Arrow> arrows = find_arrows(events);  // by their host events
  std::vector<std::size_t> ends(events.size(), arrows.size());
  for (std::size_t i = 0; i < arrows.size(); ++i) ends[arrows[i].device] = i;
  std::size_t next = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    list.add(event_json(events[i], origin));
    for (; next < arrows.size() && arrows[next].host == i; ++next) {
      list.add(arrow_json(next, false, events[i], origin));
    }
    if (ends[i] != arrows.size()) list.add(arrow_json(ends[i], true, events[i], origin));
  }
}

void add_names(EventList& list, const TraceOrigin& origin, const Recorded& recorded) {
  std::map<std::int64_t, std::pair<Track, std::set<std::uint64_t>>> processes;
  for (const TraceEvent& event : recorded.events) {
    auto& [track, numbers] = processes[process_of(origin.rank, event.track)];
    track = event.track;
    if (!event.is_counter) numbers.insert(event.track.number);
  }
  for (const auto& [pid, process] : processes) {
    const auto& [track, numbers] = process;
    const bool is_host = track.device < 0;
    const std::string name =
        is_host ? fmt::format("rank {} on {}, process {}", origin.rank, origin.host, origin.pid)
                : fmt::format("rank {} cuda:{}", origin.rank, track.device);
    list.add(metadata("process_name", pid, 0, "name", name));
    list.add(metadata("process_sort_index", pid, 0, "sort_index", pid));
    for (const std::uint64_t number : numbers) {
      list.add(metadata("thread_name", pid, static_cast<std::int64_t>(number), "name",
                        fmt::format("{} {}", is_host ? "thread" : "stream", number)));
    }
  }
}

// Note [Overlapped events of a stream]
// A GPU may start a kernel while its predecessor in the stream still runs. (CUDA's programmatic
// dependent launch.) Such a kernel waits for the predecessor before it does its work. Viewers drop
// an event that begins inside another one of its line and ends after it. So the event of such a
// kernel begins with the predecessor's end. Branches of a graph that run in parallel need no mend:
// CUPTI and the simulator report a stream of its own for each.
bool is_same_line(const Track& a, const Track& b) {
  return a.device == b.device && a.number == b.number;
}

// The place of an event in a file: by line and begin, and behind the events around it.
auto place_in_file(const TraceEvent& event) {
  return std::tuple(event.track.device, event.track.number, event.begin_ns, -event.duration_ns);
}

// Puts the events of threads behind the counters. Of events with equal times the later one ended
// behind the others, so it is around them.
void sort_host_events(std::vector<TraceEvent>& events) {
  const std::ranges::subrange all = std::ranges::stable_partition(
      events, [](const TraceEvent& event) { return event.is_counter; });
  std::ranges::reverse(all);
  std::ranges::stable_sort(all, {}, place_in_file);
}

// Puts the device events last, by stream and begin, and lets the events of each stream nest.
void nest_device_events(std::vector<TraceEvent>& events) {
  const std::ranges::subrange all = std::ranges::stable_partition(
      events, [](const TraceEvent& event) { return !stands_on_stream(event); });
  std::ranges::stable_sort(all, {}, place_in_file);
  std::vector<std::int64_t> open_ends;  // of the events around the current one, innermost last
  const TraceEvent* previous = nullptr;
  for (TraceEvent& event : all) {
    const std::int64_t end = event.begin_ns + event.duration_ns;
    if (previous != nullptr && is_same_line(previous->track, event.track)) {
      event.begin_ns = std::max(event.begin_ns, previous->begin_ns);  // which may have moved
    } else {
      open_ends.clear();
    }
    while (!open_ends.empty() && (open_ends.back() <= event.begin_ns || open_ends.back() < end)) {
      event.begin_ns = std::max(event.begin_ns, open_ends.back());
      open_ends.pop_back();
    }
    event.duration_ns = std::max<std::int64_t>(end - event.begin_ns, 0);
    open_ends.push_back(event.begin_ns + event.duration_ns);
    previous = &event;
  }
}

struct Part {
  Json root;
  std::int64_t start_unix_ns = 0;
  std::int64_t start_ns = 0;
  std::string boot;
  int rank = 0;
};

// Note [Clocks of traces]
// Processes of one machine share its monotonic clock, so their events are aligned exactly, even if
// the real-time clock was adjusted. The first trace of each machine maps its monotonic clock to
// real time. This mapping aligns different machines.
void align(std::vector<Part>& parts) {
  std::map<std::string, std::int64_t> offsets;  // of calendars ahead of monotonic clocks, by boot
  for (Part& part : parts) {
    if (part.boot.empty()) continue;
    const std::int64_t own = part.start_unix_ns - part.start_ns;
    part.start_unix_ns = part.start_ns + offsets.try_emplace(part.boot, own).first->second;
  }
}

Part read_part(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{8} << 30;
  const FileContent content = read_regular_file(path.string(), kMostBytes);
  if (!content.ok()) {
    throw Error(fmt::format("merge: failed to read '{}': {}", path.string(), content.problem));
  }
  Part part;
  try {
    part.root = Json::parse(content.text);
    const Json& origin = part.root.at("gantry");
    if (origin.at("version").as<int>() != kVersion) {
      throw InvalidArgument(fmt::format("expected version {}", kVersion));
    }
    part.start_unix_ns = origin.at("start_unix_ns").as<std::int64_t>();
    part.start_ns = origin.at("start_ns").as<std::int64_t>();
    part.boot = origin.at("boot").as<std::string>();
    part.rank = origin.at("rank").as<int>();
    static_cast<void>(part.root.at("traceEvents").elements());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("merge: expected a trace of gantry, but got '{}': {}",
                                      path.string(), error.what()));
  }
  return part;
}

}  // namespace

void write_trace(const std::filesystem::path& path, const TraceOrigin& origin, Recorded recorded) {
  sort_host_events(recorded.events);
  nest_device_events(recorded.events);
  AtomicFile file(path, "trace: ");
  file.out() << "{\"displayTimeUnit\": \"ns\", \"gantry\": "
             << Json::object({{"version", kVersion},
                              {"rank", origin.rank},
                              {"pid", origin.pid},
                              {"host", origin.host},
                              {"boot", origin.boot},
                              {"start_ns", origin.start_ns},
                              {"start_unix_ns", origin.start_unix_ns},
                              {"events", recorded.events.size()},
                              {"dropped", recorded.dropped}})
                    .dump()
             << ", \"traceEvents\": [";
  EventList list(file.out());
  add_names(list, origin, recorded);
  add_events(list, origin, recorded.events);
  file.out() << "\n]}\n";
  file.commit();
}

void merge(std::span<const std::filesystem::path> parts, const std::filesystem::path& path) {
  if (parts.empty()) throw InvalidArgument("merge: expected at least one trace, but got none");
  std::vector<Part> read;
  std::set<int> ranks;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const std::filesystem::path& one : parts) {
    read.push_back(read_part(one));
    if (!ranks.insert(read.back().rank).second) {
      throw InvalidArgument(
          fmt::format("merge: expected one trace of each rank, but got two of "
                      "rank {}",
                      read.back().rank));
    }
  }
  align(read);
  for (const Part& part : read) first = std::min(first, part.start_unix_ns);
  AtomicFile file(path, "merge: ");
  file.out() << "{\"displayTimeUnit\": \"ns\", \"ranks\": "
             << Json(Json::Array(ranks.begin(), ranks.end())).dump() << ", \"traceEvents\": [";
  EventList list(file.out());
  for (const Part& part : read) {
    const double shift = microseconds(part.start_unix_ns - first);
    for (Json event : part.root.at("traceEvents").elements()) {
      if (const Json* ts = event.find("ts")) event.set("ts", ts->as<double>() + shift);
      list.add(event);
    }
  }
  file.out() << "\n]}\n";
  file.commit();
}

}  // namespace gantry::trace
