// Gives the layers below the places of calls; see CallPlaceSource.
#include "device/call_place.hpp"

#include <fmt/format.h>

#include "memory/trace/call_site.hpp"

namespace gantry::memory {
namespace {

std::uint32_t capture() noexcept { return intern_call_stack(StackDepth::full); }

// The function of gantry that the program called, and the line of that call.
CallPlace describe(std::uint32_t number) {
  CallPlace call;
  for (const Frame& frame : frames_of(number)) {
    if (!frame.is_internal) {
      call.place = fmt::format("{}:{}", frame.filename, frame.line);
      break;
    }
    if (frame.name.starts_with("gantry::")) call.function = frame.name;
  }
  return call;
}

constexpr CallPlaceSource kSource{capture, describe};

// Before main(): no layer below knows when this one is first used.
[[maybe_unused]] const bool is_set = [] {
  set_call_place_source(&kSource);
  return true;
}();

}  // namespace
}  // namespace gantry::memory
