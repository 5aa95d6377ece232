// The inputs and outputs of a JIT function, as its source declares them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::kernels::jit {

// The most inputs, and the most outputs.
inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxOutputs = 8;

// An output: of the operands' dtype, or bool.
enum class OutputKind : bool { promoted, boolean };

// The function that a program calls: the last function template of its source.
struct Signature {
  std::string name;
  int inputs = 0;
  int required = 0;  // inputs without a default value, which come first
  std::vector<OutputKind> outputs;
  bool returns = false;  // the one output is the result; else outputs are reference parameters
};

// Reads the signature of "template <typename T> T f(T x, T y = 2) {…}" or "template <typename T>
// void f(T x, T& first, bool& second) {…}". Throws: InvalidArgument.
[[nodiscard]] Signature parse_signature(std::string_view source);

}  // namespace gantry::kernels::jit
