#include "kernels/observed_op.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gantry/core/dtype.hpp>

#include "core/trace_log.hpp"
#include "kernels/memory_counters.hpp"
#include "memory/trace/call_site.hpp"
#include "streams/profiling/nvtx_calls.hpp"

namespace gantry::kernels {
namespace {

// The operation that this thread began last. Small, since all threads have one.
struct CurrentOp {
  std::array<char, 31> name{};
  std::uint8_t length = 0;
  std::int64_t begin_ns = 0;
};
thread_local CurrentOp current_op;

std::string describe(const TensorRef& operand) {
  std::string text(name(operand.dtype));
  text += '[';
  for (int dim = 0; dim < operand.ndim; ++dim) {
    text += fmt::format("{}{}", dim == 0 ? "" : ", ", operand.sizes[dim]);
  }
  return text + ']';
}

}  // namespace

struct ObservedOp::Details {
  std::string op;
  std::string kernel;
  std::string shapes;
  Device device;
  std::int64_t begin_ns = 0;
  std::uint32_t call_site = 0;
  std::optional<trace::Label> label{};
};

void note_check_observed() noexcept {
  current_op.length = 0;
  current_op.begin_ns = trace::now_ns();
}

void note_op_observed(std::string_view op) noexcept {
  CurrentOp& now = current_op;
  now.length = static_cast<std::uint8_t>(std::min(op.size(), now.name.size()));
  std::copy_n(op.data(), now.length, now.name.data());
}

void ObservedOp::begin(const Target& target, std::span<const TensorRef* const> operands,
                       const char* kernel) noexcept {
  try {
    CurrentOp& now = current_op;
    auto made = std::make_unique<Details>();
    made->kernel = kernel;
    made->op = now.length == 0 ? made->kernel : std::string(now.name.data(), now.length);
    for (const TensorRef* operand : operands) {
      if (operand == nullptr) continue;
      made->shapes += (made->shapes.empty() ? "" : " ") + describe(*operand);
    }
    made->device = target.device();
    const std::int64_t present = trace::now_ns();
    made->begin_ns = now.begin_ns == 0 ? present : now.begin_ns;
    if (has_op_observer(OpObserver::trace)) {
      made->call_site = memory::intern_call_stack(memory::StackDepth::call_site);
      made->label.emplace(made->op);
    }
    if (has_op_observer(OpObserver::nvtx)) {
      nvtx::call_push(fmt::format("{} {}", made->op, made->shapes).c_str());
      has_range_ = true;
    }
    details_ = made.release();
    is_observed_ = true;
  } catch (...) {  // without host memory the operation is not observed
  }
}

void ObservedOp::end() noexcept {
  const std::unique_ptr<Details> details(details_);
  if (has_range_) nvtx::call_pop();
  details->label.reset();
  const std::int64_t present = trace::now_ns();
  if (has_op_observer(OpObserver::trace)) {
    try {
      trace::TraceEvent event{.name = std::move(details->op),
                              .category = "op",
                              .track = trace::this_thread_track(),
                              .begin_ns = details->begin_ns,
                              .duration_ns = present - details->begin_ns,
                              .call_site = details->call_site};
      event.arguments = {{"kernel", std::move(details->kernel)},
                         {"device", details->device.str()},
                         {"operands", std::move(details->shapes)}};
      trace::TraceLog::instance().add(std::move(event));
      record_memory_counters(details->device);
    } catch (...) {
      trace::TraceLog::instance().count_dropped(1);
    }
  }
  // The next kernel of the same operation begins here.
  current_op.begin_ns = present;
}

}  // namespace gantry::kernels
