#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/core/export.hpp>

namespace gantry::jit {

/// A compiler rejected the source of jit::elementwise. The text ends with the compiler's messages;
/// their line numbers are those of that source.
/// @code
/// try {
///   const auto f = jit::elementwise("template <typename T> T f(T x) { return y; }");
///   (void)f(ones({4}));
/// } catch (const jit::CompileError& error) {
///   std::cout << error.log();
/// }
/// @endcode
/// @since 0.3
class GANTRY_API CompileError : public InvalidArgument {
 public:
  /// `log` is the compiler's output.
  CompileError(const std::string& message, std::string log, std::string_view device = {},
               std::source_location where = std::source_location::current());

  /// The compiler's output, such as "source:2:10: error: 'z' was not declared in this scope".
  [[nodiscard]] const std::string& log() const noexcept;

 private:
  std::shared_ptr<const std::string> log_;
};

}  // namespace gantry::jit
