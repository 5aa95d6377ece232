// Gives the layers below the places of calls; see CallPlaceSource.
#include "device/call_place.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "memory/trace/call_site.hpp"

namespace gantry::memory {
namespace {

std::uint32_t capture() noexcept { return intern_call_stack(StackDepth::full); }

// Without arguments and, for a driver in front of the platform's, under the name of its base.
std::string short_name(std::string name) {
  constexpr std::string_view kDecorator = "gantry::SyncDebugDriver::";
  if (name.starts_with(kDecorator)) name.replace(0, kDecorator.size(), "gantry::Driver::");
  const bool has_other_parentheses =
      name.find("{lambda(") != std::string::npos || name.find("operator()") != std::string::npos;
  return has_other_parentheses ? name : name.substr(0, name.find('('));
}

// The function of gantry that the program called, and the line of that call.
CallPlace describe(std::uint32_t number) {
  CallPlace call;
  for (const Frame& frame : frames_of(number)) {
    if (!frame.is_internal) {
      call.place = fmt::format("{}:{}", frame.filename, frame.line);
      break;
    }
    if (frame.name.starts_with("gantry::")) call.function = short_name(frame.name);
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
