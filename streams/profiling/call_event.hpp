// Calls in traces that submit work without an operation on tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/trace_log.hpp"

namespace gantry::trace {

/// The call that a thread makes now: an event of category "op", if the log is on.
class CallEvent {
 public:
  /// `name` outlives the call.
  explicit CallEvent(std::string_view name) noexcept
      : name_(name), begin_ns_(is_on() ? now_ns() : 0) {}
  ~CallEvent() {
    if (begin_ns_ != 0) end();
  }
  CallEvent(const CallEvent&) = delete;
  CallEvent& operator=(const CallEvent&) = delete;

 private:
  void end() noexcept;

  std::string_view name_;
  std::int64_t begin_ns_;
};

}  // namespace gantry::trace
