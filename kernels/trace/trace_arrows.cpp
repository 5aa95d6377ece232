#include "kernels/trace/trace_arrows.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace gantry::trace {
namespace {

std::int64_t end_of(const TraceEvent& event) { return event.begin_ns + event.duration_ns; }

bool stands_on_thread(const TraceEvent& event) {
  return event.track.device < 0 && !event.is_counter;
}

// The events around a moment that moves forward on the lines of the threads.
class EventsAround {
 public:
  explicit EventsAround(std::span<const TraceEvent> events) : events_(events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (stands_on_thread(events[i])) own_.push_back(i);
    }
    std::ranges::stable_sort(own_, {}, [&](std::size_t i) { return events_[i].track.number; });
  }
  // The innermost event around `moment`, which no later call precedes. Null if there is none.
  const std::size_t* find(const Submission& moment) {
    for (; next_ < own_.size(); ++next_) {
      const TraceEvent& event = events_[own_[next_]];
      const std::uint64_t thread = event.track.number;
      if (std::tie(thread, event.begin_ns) > std::tie(moment.thread, moment.at_ns)) break;
      if (thread != thread_) open_.clear();
      thread_ = thread;
      close_before(event.begin_ns);
      open_.push_back(own_[next_]);
    }
    if (thread_ != moment.thread) return nullptr;
    close_before(moment.at_ns);
    return open_.empty() ? nullptr : &open_.back();
  }

 private:
  void close_before(std::int64_t moment) {
    while (!open_.empty() && end_of(events_[open_.back()]) < moment) open_.pop_back();
  }

  std::span<const TraceEvent> events_;
  std::vector<std::size_t> own_;   // the events of threads, by thread and begin
  std::vector<std::size_t> open_;  // around the moment, innermost last
  std::size_t next_ = 0;           // of own_
  std::uint64_t thread_ = 0;
};

}  // namespace

bool stands_on_stream(const TraceEvent& event) {
  return event.track.device >= 0 && !event.is_counter;
}

std::vector<Arrow> find_arrows(std::span<const TraceEvent> events) {
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (stands_on_stream(events[i]) && events[i].submission.thread != 0) work.push_back(i);
  }
  std::ranges::stable_sort(work, {}, [&](std::size_t i) {
    return std::tuple(events[i].submission.thread, events[i].submission.at_ns);
  });
  EventsAround around(events);
  std::vector<Arrow> arrows;
  for (const std::size_t device : work) {
    const std::size_t* const host = around.find(events[device].submission);
    if (host != nullptr) arrows.push_back({.host = *host, .device = device});
  }
  std::ranges::stable_sort(arrows, {}, &Arrow::host);
  return arrows;
}

}  // namespace gantry::trace
