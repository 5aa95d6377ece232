// Where the program called gantry: for messages about calls that fail or block.
#pragma once

#include <cstdint>
#include <string>

namespace gantry {

/// A call of the program into gantry. Both texts are empty where they are unknown.
struct CallPlace {
  std::string function;  ///< of gantry, such as "gantry::Tensor::item"
  std::string place;     ///< of the program, as "file:line"

  /// Such as "gantry::Tensor::item at train.cpp:42", empty if both are unknown.
  [[nodiscard]] std::string describe() const;
};

/// Number of the calling thread's stack, for describe_call_place(). Cheap. Returns 0 without host
/// memory.
[[nodiscard]] std::uint32_t capture_call_place() noexcept;
/// The end of the text of an error with CUDA's number `code`, if a capture is the cause: the
/// program's present call, and for a call that captures forbid, the remedy. Else empty.
[[nodiscard]] std::string capture_error_place(int code);
/// The call of a stack that was captured. Slow: it looks the names up.
[[nodiscard]] CallPlace describe_call_place(std::uint32_t number);

}  // namespace gantry
