#include "kernels/observed_op.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/stacks/call_site.hpp"
#include "core/trace_log.hpp"
#include "device/platform/platform.hpp"
#include "kernels/trace/memory_counters.hpp"
#include "kernels/trace/wanted_trace.hpp"
#include "streams/profiling/nvtx_calls.hpp"

namespace gantry::kernels {
namespace {

// A program that links the static library has this file if it has any operation. It would not have
// the file of traces.
[[maybe_unused]] const bool kIsTraceRegistered = [] {
  decorate_driver(DriverLayer::trace, trace::start_if_wanted);
  return true;
}();

constexpr std::size_t kMostArrays = 16;  // of a kernel whose arrays are listed

std::string describe(const TensorRef& operand) {
  std::string text(name(operand.dtype));
  text += '[';
  for (int dim = 0; dim < operand.ndim; ++dim) {
    text += fmt::format("{}{}", dim == 0 ? "" : ", ", operand.sizes[dim]);
  }
  return text + ']';
}

std::string describe(std::span<const TensorRef* const> operands) {
  std::string text;
  for (const TensorRef* operand : operands) {
    if (operand == nullptr) continue;
    text += (text.empty() ? "" : " ") + describe(*operand);
  }
  return text;
}

std::string describe(std::span<const ArrayOperands> groups) {
  std::string text;
  std::size_t listed = 0;
  for (const ArrayOperands& group : groups) {
    for (std::size_t i = 0; i < group.arrays; ++i) {
      if (listed++ == kMostArrays) return text + " …";
      text += fmt::format("{}{}[{}]", text.empty() ? "" : " ", name(group.dtype), group.count);
    }
  }
  return text;
}

}  // namespace

struct ObservedOp::Details {
  std::string op;
  std::string kernel;
  std::string operands;
  std::string range;  // for profilers
  Device device{};
  std::int64_t begin_ns = 0;
  std::uint32_t call_site = 0;
  OpScope* scope = nullptr;  // which wants the event
  std::optional<trace::Label> label{};
};

void ObservedOp::begin(const Target& target, std::span<const TensorRef* const> operands,
                       const char* kernel, std::span<const ArrayOperands> arrays) noexcept {
  const std::int64_t now = trace::now_ns();
  try {
    const OpScope* const scope = OpScope::current();
    auto made = std::make_unique<Details>();
    made->kernel = kernel;
    made->op = scope == nullptr ? made->kernel : std::string(scope->name());
    made->operands = arrays.empty() ? describe(operands) : describe(arrays);
    made->range = fmt::format("{} {}", made->op, made->operands);
    if (has_observer(Observer::trace)) made->label.emplace(made->op);
    enter(target, std::move(made), now);
  } catch (...) {  // without host memory the operation is not observed
  }
}

void ObservedOp::begin(const Target& target, std::string kernel, std::string operands) noexcept {
  const std::int64_t now = trace::now_ns();
  try {
    const OpScope* const scope = OpScope::current();
    auto made = std::make_unique<Details>();
    made->kernel = std::move(kernel);
    made->op = scope == nullptr ? made->kernel : std::string(scope->name());
    made->operands = std::move(operands);
    made->range = fmt::format("{} {}", made->op, made->kernel);
    if (has_observer(Observer::trace)) made->label.emplace(made->kernel);
    enter(target, std::move(made), now);
  } catch (...) {  // without host memory the kernel is not observed
  }
}

void ObservedOp::enter(const Target& target, std::unique_ptr<Details> details, std::int64_t now) {
  details->device = target.device();
  if (has_observer(Observer::trace)) {
    details->call_site = stacks::intern_call_stack(stacks::StackDepth::call_site);
  }
  if (has_observer(Observer::nvtx)) {
    nvtx::call_push(details->range.c_str());
    has_range_ = true;
  }
  details->begin_ns = now;
  OpScope* const scope = OpScope::current();
  if (scope != nullptr && scope->note_kernel(details->device)) details->scope = scope;
  details_ = details.release();
  is_observed_ = true;
}

void ObservedOp::end() noexcept {
  const std::unique_ptr<Details> details(details_);
  if (has_range_) nvtx::call_pop();
  details->label.reset();
  if (!has_observer(Observer::trace)) return;
  try {
    auto event = std::make_unique<trace::TraceEvent>();
    event->name = std::move(details->op);
    event->category = "op";
    event->track = trace::this_thread_track();
    event->begin_ns = details->begin_ns;
    event->duration_ns = trace::now_ns() - details->begin_ns;
    event->call_site = details->call_site;
    event->arguments = {{"kernel", std::move(details->kernel)},
                        {"device", details->device.str()},
                        {"operands", std::move(details->operands)}};
    if (details->scope != nullptr) {
      details->scope->take_event(std::move(event));
    } else {
      trace::TraceLog::instance().add(std::move(*event));
    }
    record_memory_counters(details->device);
  } catch (...) {
    trace::TraceLog::instance().count_dropped(1);
  }
}

}  // namespace gantry::kernels
