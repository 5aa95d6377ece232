#include "streams/profiling/call_event.hpp"

#include <string>

#include "core/stacks/call_site.hpp"

namespace gantry::trace {

void CallEvent::end() noexcept {
  try {
    TraceLog::instance().add(
        {.name = std::string(name_),
         .category = "op",
         .track = this_thread_track(),
         .begin_ns = begin_ns_,
         .duration_ns = now_ns() - begin_ns_,
         .call_site = stacks::intern_call_stack(stacks::StackDepth::call_site)});
  } catch (...) {
    TraceLog::instance().count_dropped(1);
  }
}

}  // namespace gantry::trace
