#include "core/stacks/call_place.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/stacks/call_site.hpp"

namespace gantry {

namespace {

// Without arguments and, for a driver in front of the platform's, under the name of its base.
std::string short_name(std::string name) {
  constexpr std::string_view kDecorator = "gantry::SyncDebugDriver::";
  if (name.starts_with(kDecorator)) name.replace(0, kDecorator.size(), "gantry::Driver::");
  const bool has_other_parentheses =
      name.find("{lambda(") != std::string::npos || name.find("operator()") != std::string::npos;
  return has_other_parentheses ? name : name.substr(0, name.find('('));
}

}  // namespace

std::string CallPlace::describe() const {
  if (place.empty()) return function;
  return function.empty() ? place : fmt::format("{} at {}", function, place);
}

std::uint32_t capture_call_place() noexcept {
  return stacks::intern_call_stack(stacks::StackDepth::full);
}

std::string capture_error_place(int code) {
  constexpr int kUnsupported = 900;
  constexpr int kLast = 908;
  if (code < kUnsupported || code > kLast) return {};
  std::string text;
  if (const std::string call = describe_call_place(capture_call_place()).describe();
      !call.empty()) {
    text = ", in " + call;
  }
  if (code == kUnsupported) text += "; make this call before or after the capture";
  return text;
}

CallPlace describe_call_place(std::uint32_t number) {
  CallPlace call;
  for (const Frame& frame : stacks::frames_of(number)) {
    if (!frame.is_internal) {
      call.place = fmt::format("{}:{}", frame.filename, frame.line);
      break;
    }
    if (frame.name.starts_with("gantry::")) call.function = short_name(frame.name);
  }
  return call;
}

}  // namespace gantry
