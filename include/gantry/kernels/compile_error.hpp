#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/core/export.hpp>

namespace gantry::jit {

/// A compiler refused the source of jit::elementwise. The text ends with its messages, which count
/// the lines of that source.
class GANTRY_API CompileError : public InvalidArgument {
 public:
  /// `log` is what the compiler wrote.
  CompileError(const std::string& message, std::string log, std::string_view device = {},
               std::source_location where = std::source_location::current())
      : InvalidArgument(message + "\n" + log, device, where),
        log_(std::make_shared<const std::string>(std::move(log))) {}

  /// What the compiler wrote, such as "source:2:10: error: 'z' was not declared in this scope".
  [[nodiscard]] const std::string& log() const noexcept { return *log_; }

 private:
  std::shared_ptr<const std::string> log_;
};

}  // namespace gantry::jit
