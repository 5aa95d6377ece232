#include <gantry/tensor/conditional.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "streams/capture.hpp"
#include "streams/graphs/condition.hpp"
#include "tensor/check.hpp"

namespace gantry {
namespace {

void check_flag(const char* op, const Tensor& flag) {
  detail::check_defined(op, "flag", flag);
  if (flag.device().is_cpu()) {
    throw InvalidArgument(fmt::format("{}: expected flag on a device, but got it on the CPU", op));
  }
  if (flag.numel() != 1) {
    throw ShapeError(fmt::format("{}: expected flag with one element, but got sizes {}", op,
                                 flag.sizes().str()));
  }
  if (flag.dtype() != DType::bool_ && flag.dtype() != DType::i32) {
    throw DTypeError(fmt::format("{}: expected flag of type Bool or Int, but got {}", op,
                                 torch_name(flag.dtype())));
  }
}

bool is_set(const Tensor& flag) {
  return flag.dtype() == DType::bool_ ? flag.item<bool>() : flag.item<std::int32_t>() != 0;
}

void capture_body(const Stream& stream, ConditionKind kind, const Tensor& flag,
                  const std::function<void()>& body) {
  ConditionScope scope(stream, {.kind = kind,
                                .flag = flag.data_ptr(),
                                .flag_bytes = flag.dtype() == DType::bool_ ? 1u : 4u});
  {
    const StreamGuard guard(scope.stream());
    body();
  }
  try {
    scope.end();
  } catch (const CudaError& error) {
    throw CaptureError(
        fmt::format("{}: failed to capture the body of a condition: {}",
                    kind == ConditionKind::if_ ? "graph_if" : "graph_while", error.what()),
        stream.device().str());
  }
}

}  // namespace

void graph_if(const Tensor& flag, const std::function<void()>& body) {
  check_flag("graph_if", flag);
  const Stream stream = Stream::current(flag.device());
  if (is_captured(stream.native())) return capture_body(stream, ConditionKind::if_, flag, body);
  if (is_set(flag)) body();
}

void graph_while(const Tensor& flag, const std::function<void()>& body) {
  check_flag("graph_while", flag);
  const Stream stream = Stream::current(flag.device());
  if (is_captured(stream.native())) return capture_body(stream, ConditionKind::while_, flag, body);
  while (is_set(flag)) body();
}

}  // namespace gantry
