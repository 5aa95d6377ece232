#include "kernels/op_scope.hpp"

#include <memory>
#include <utility>

#include "core/stacks/call_site.hpp"
#include "core/trace_log.hpp"

namespace gantry::kernels {
namespace {

thread_local OpScope* innermost = nullptr;

}  // namespace

OpScope* OpScope::current() noexcept { return innermost; }

void OpScope::enter(std::string_view name, Event event) noexcept {
  if (name.ends_with('_')) name.remove_suffix(1);  // add_ is add
  if (innermost != nullptr && innermost->name_ == name) return;
  is_entered_ = true;
  wants_event_ = event == Event::own;
  kind_ = event;
  name_ = name;
  begin_ns_ = trace::now_ns();
  outer_ = std::exchange(innermost, this);
}

bool OpScope::note_kernel(Device device) noexcept {
  for (OpScope* scope = this; scope != nullptr && !scope->device_; scope = scope->outer_) {
    scope->device_ = device;
  }
  return std::exchange(wants_event_, false);
}

void OpScope::take_event(std::unique_ptr<trace::TraceEvent> event) noexcept {
  delete std::exchange(event_, event.release());
}

void OpScope::leave() noexcept {
  innermost = outer_;
  std::unique_ptr<trace::TraceEvent> event(std::exchange(event_, nullptr));
  if (kind_ == Event::external || !has_observer(Observer::trace)) return;
  const std::int64_t end_ns = trace::now_ns();
  try {
    if (event == nullptr) {
      event = std::make_unique<trace::TraceEvent>();
      event->category = "op";
      event->track = trace::this_thread_track();
      event->call_site = stacks::intern_call_stack(stacks::StackDepth::call_site);
      if (device_) event->arguments = {{"device", device_->str()}};
    }
    event->name = name_;
    event->begin_ns = begin_ns_;
    event->duration_ns = end_ns - begin_ns_;
    trace::TraceLog::instance().add(std::move(*event));
  } catch (...) {
    trace::TraceLog::instance().count_dropped(1);
  }
}

}  // namespace gantry::kernels
