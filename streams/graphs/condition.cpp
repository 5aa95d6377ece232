#include "streams/graphs/condition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/streams/owned_stream.hpp>

#include "streams/capture.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {
namespace {

using StreamKey = std::pair<int, std::uint64_t>;

StreamKey key_of(const Stream& stream) { return {stream.device().index, stream.id()}; }

// The stream of the bodies in captures of `around`. Never destroyed: blocks may be on it.
Stream body_stream(const Stream& around) {
  static auto& mutex = *new std::mutex();
  static auto& streams = *new std::map<StreamKey, OwnedStream>();
  const StreamKey key = key_of(around);
  const std::lock_guard lock(mutex);
  const auto known = streams.find(key);
  if (known != streams.end()) return known->second.stream();
  return streams.emplace(key, OwnedStream(around.device())).first->second.stream();
}

struct AtEnd {
  const void* key;
  std::function<void(const Stream&)> submit;
};

// A body that is being captured.
struct OpenBody {
  Stream around;
  std::vector<AtEnd> at_end = {};
};

struct OpenBodies {
  std::mutex mutex;
  std::map<StreamKey, OpenBody> by_stream;  // of the body

  // Never destroyed: as the streams of bodies.
  static OpenBodies& instance() {
    static auto& bodies = *new OpenBodies();
    return bodies;
  }
};

// Notes that the capture of `body` began or ended. Nothing else looks at a stream that the pool
// does not own, and a stream noted as captured keeps every device from being synchronized.
void note_capture(const Stream& body) { static_cast<void>(StreamClock::of(body).is_captured()); }

OpenBody take_open(const Stream& body) {
  OpenBodies& bodies = OpenBodies::instance();
  const std::lock_guard lock(bodies.mutex);
  return std::move(bodies.by_stream.extract(key_of(body)).mapped());
}

}  // namespace

ConditionScope::ConditionScope(const Stream& around, const NativeCondition& condition)
    : body_(body_stream(around)) {
  if (!driver().supports_conditions(around.device().index)) {
    throw NotSupported(
        "graph_if, graph_while: expected a CUDA driver with conditional nodes, 12.4 or newer, but "
        "got an older one",
        around.device().str());
  }
  // The capture is known before its body is, which retains nothing.
  static_cast<void>(capture_of(around));
  driver().begin_condition(around.native(), condition, body_.native());
  try {
    note_capture(body_);
    OpenBodies& bodies = OpenBodies::instance();
    const std::lock_guard lock(bodies.mutex);
    bodies.by_stream.insert_or_assign(key_of(body_), OpenBody{around});
  } catch (...) {
    driver().abandon_condition(body_.native());
    throw;
  }
}

ConditionScope::~ConditionScope() {
  if (!is_open_) return;
  driver().abandon_condition(body_.native());
  static_cast<void>(take_open(body_));
  try {
    note_capture(body_);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving the body of a condition: {}", error.what()));
  }
}

void ConditionScope::end() {
  is_open_ = false;
  const OpenBody open = take_open(body_);
  driver().end_condition(body_.native());
  note_capture(body_);
  for (const AtEnd& at_end : open.at_end) at_end.submit(open.around);
}

std::optional<Stream> stream_around(const Stream& body) {
  OpenBodies& bodies = OpenBodies::instance();
  const std::lock_guard lock(bodies.mutex);
  auto found = bodies.by_stream.find(key_of(body));
  if (found == bodies.by_stream.end()) return std::nullopt;
  Stream around = found->second.around;
  while ((found = bodies.by_stream.find(key_of(around))) != bodies.by_stream.end()) {
    around = found->second.around;
  }
  return around;
}

void at_end_of_condition(const Stream& body, const void* key,
                         std::function<void(const Stream& around)> submit) {
  OpenBodies& bodies = OpenBodies::instance();
  const std::lock_guard lock(bodies.mutex);
  std::vector<AtEnd>& at_end = bodies.by_stream.at(key_of(body)).at_end;
  if (std::ranges::find(at_end, key, &AtEnd::key) != at_end.end()) return;
  at_end.push_back({key, std::move(submit)});
}

bool is_in_condition(const Stream& stream) {
  return is_captured(stream.native()) && driver().condition_depth(stream.native()) != 0;
}

}  // namespace gantry
