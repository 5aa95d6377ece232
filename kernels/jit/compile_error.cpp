#include <gantry/kernels/compile_error.hpp>

#include <utility>

#include "core/error_payload.hpp"

namespace gantry::jit {

CompileError::CompileError(const std::string& message, std::string log, std::string_view device,
                           std::source_location where)
    : InvalidArgument(message + "\n" + log, device, where),
      log_(std::make_shared<const std::string>(std::move(log))) {}

const std::string& CompileError::log() const noexcept {
  return gantry::detail::payload_or_empty(log_);
}

}  // namespace gantry::jit
