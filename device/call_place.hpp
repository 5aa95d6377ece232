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

/// The layer that walks stacks: `capture` numbers the calling thread's stack and is cheap,
/// `describe` looks its names up and is slow.
struct CallPlaceSource {
  std::uint32_t (*capture)() noexcept;
  CallPlace (*describe)(std::uint32_t number);
};

/// Sets the source, which must live as long as the process.
void set_call_place_source(const CallPlaceSource* source) noexcept;

/// Number of the calling thread's stack; 0 without a source.
[[nodiscard]] std::uint32_t capture_call_place() noexcept;
/// The call of a stack that was captured.
[[nodiscard]] CallPlace describe_call_place(std::uint32_t number);

}  // namespace gantry
