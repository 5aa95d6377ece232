// The calls of operations, in traces and as the names of their kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <gantry/device/device.hpp>

#include "core/observers.hpp"

namespace gantry::trace {
struct TraceEvent;
}

namespace gantry::kernels {

// Note [Observed operations]
// An operation opens an OpScope when it is called, and every kernel goes through submit(), which
// makes an ObservedOp. The innermost scope of the thread names the kernels; without a scope a
// kernel has its own name ("gather"). Every scope has one trace event, from its begin to its end.
// That event also tells of the scope's first kernel. Further kernels, and operations inside, have
// events of their own. Scopes and submissions are objects on the stack of one thread. Therefore no
// name outlives its operation, and the events of a thread nest. While nothing observes, a scope
// costs one load.

// The call of one operation.
class OpScope {
 public:
  // The trace event of the call.
  enum class Event {
    own,       // made by the scope
    external,  // made by the owner of the scope
  };

  // `name` outlives the scope. A scope inside one of the same name is a part of that one.
  explicit OpScope(std::string_view name, Event event = Event::own) noexcept {
    if (has_observer(kOpObservers)) [[unlikely]] {
      enter(name, event);
    }
  }
  ~OpScope() {
    if (is_entered_) [[unlikely]] {
      leave();
    }
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // The innermost scope of the calling thread, or null.
  [[nodiscard]] static OpScope* current() noexcept;

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  // Notes a kernel on `device`. True if the scope wants its event.
  [[nodiscard]] bool note_kernel(Device device) noexcept;
  // The event of the kernel that note_kernel() asked for.
  void take_event(std::unique_ptr<trace::TraceEvent> event) noexcept;

 private:
  void enter(std::string_view name, Event event) noexcept;
  void leave() noexcept;

  bool is_entered_ = false;
  bool wants_event_ = false;
  Event kind_ = Event::own;
  std::string_view name_;
  std::int64_t begin_ns_ = 0;
  OpScope* outer_ = nullptr;
  std::optional<Device> device_;        // of the first kernel, also inside scopes inside
  trace::TraceEvent* event_ = nullptr;  // of the first own kernel
};

}  // namespace gantry::kernels
