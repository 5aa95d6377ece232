#include "streams/graphs/condition.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/streams/owned_stream.hpp>

#include "streams/capture.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {
namespace {

// The stream of the bodies in captures of `around`. Never destroyed: blocks may be on it.
Stream body_stream(const Stream& around) {
  static auto& mutex = *new std::mutex();
  static auto& streams = *new std::map<std::pair<int, std::uint64_t>, OwnedStream>();
  const std::pair key(around.device().index, around.id());
  const std::lock_guard lock(mutex);
  const auto known = streams.find(key);
  if (known != streams.end()) return known->second.stream();
  return streams.emplace(key, OwnedStream(around.device())).first->second.stream();
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
    static_cast<void>(StreamClock::of(body_).is_captured());  // notes it, for frees
  } catch (...) {
    driver().abandon_condition(body_.native());
    throw;
  }
}

ConditionScope::~ConditionScope() {
  if (is_open_) driver().abandon_condition(body_.native());
}

void ConditionScope::end() {
  is_open_ = false;
  driver().end_condition(body_.native());
}

bool is_in_condition(const Stream& stream) {
  return is_captured(stream.native()) && driver().condition_depth(stream.native()) != 0;
}

}  // namespace gantry
