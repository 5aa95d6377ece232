#pragma once

#include "kernels/op_scope.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::comm {

// A call of the program: its kernels and copies have its name in reports of the sanitizer and in
// traces.
class NamedCall {
 public:
  // `name` is a string literal.
  explicit NamedCall(const char* name) noexcept : in_reports_(name), in_traces_(name) {}

 private:
  sanitizer::OperationName in_reports_;
  kernels::OpScope in_traces_;
};

}  // namespace gantry::comm
