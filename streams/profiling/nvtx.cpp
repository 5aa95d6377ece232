#include <gantry/streams/nvtx.hpp>

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/observers.hpp"
#include "streams/profiling/nvtx_calls.hpp"

namespace gantry::nvtx {
namespace {

thread_local int depth = 0;

// NVTX gives all ranges the number 0 while no profiler listens, so they have numbers of ours too.
struct OpenRanges {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> native;
};

OpenRanges& open_ranges() {
  static auto& instance = *new OpenRanges();
  return instance;
}

// Warns once of a profiler that gets nothing.
void check_profiler() {
  static const bool is_checked = [] {
    const std::optional<std::string> library = env::get("NVTX_INJECTION64_PATH");
    if (!library || library->empty()) return true;
    if (const std::string why = why_not_loaded(*library); !why.empty()) {
      logging::warn(fmt::format(
          "nvtx: failed to load the profiler of NVTX_INJECTION64_PATH, {}: {}; it gets no ranges",
          *library, why));
    }
    return true;
  }();
  static_cast<void>(is_checked);
}

const char* checked(const char* op, const std::string& message) {
  check_profiler();
  if (message.find('\0') == std::string::npos) return message.c_str();
  throw InvalidArgument(
      fmt::format("{}: expected a message without null characters, but got one at position {}", op,
                  message.find('\0')));
}

}  // namespace

void mark(const std::string& message) { call_mark(checked("mark", message)); }

int range_push(const std::string& message) {
  call_push(checked("range_push", message));
  return depth++;
}

int range_pop() {
  if (depth == 0) {
    throw InvalidArgument("range_pop: expected a range that this thread began, but got none");
  }
  call_pop();
  return --depth;
}

RangeId range_start(const std::string& message) {
  const char* text = checked("range_start", message);
  OpenRanges& open = open_ranges();
  const std::lock_guard lock(open.mutex);
  const auto entry = open.native.emplace(open.last + 1, 0).first;
  ++open.last;
  entry->second = call_start(text);
  return static_cast<RangeId>(open.last);
}

void range_end(RangeId range) {
  OpenRanges& open = open_ranges();
  const std::lock_guard lock(open.mutex);
  const auto found = open.native.find(static_cast<std::uint64_t>(range));
  if (found == open.native.end()) {
    throw InvalidArgument(fmt::format("range_end: expected an open range, but got number {}",
                                      static_cast<std::uint64_t>(range)));
  }
  call_end(found->second);
  open.native.erase(found);
}

Range::Range(const std::string& message) { range_push(message); }

Range::~Range() {
  if (depth == 0) return;  // the program popped it
  call_pop();
  --depth;
}

void annotate_ops(bool enabled) {
  if (enabled) check_profiler();
  set_observer(Observer::nvtx, enabled);
}

bool annotates_ops() noexcept { return has_observer(Observer::nvtx); }

}  // namespace gantry::nvtx
