#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <gantry/core/macros.hpp>

namespace gantry {

class Generator;

/// A function parameter for the generator of a random operation: a Generator or a pointer to one,
/// const or not, because a Generator is a handle. Empty or null means the default generator of the
/// tensor's device.
///
/// Borrows the generator: use it for parameters only, never store it.
/// @code
/// Generator generator("cuda:0", 7);
/// const Tensor x = randn({4}, {.device = "cuda:0"}, generator);
/// @endcode
/// @since 0.1
class GeneratorRef {
 public:
  GeneratorRef() = default;
  /// A reference to `generator`, or to the default generator.
  GeneratorRef(std::nullptr_t) {}
  GeneratorRef(const Generator& generator) : generator_(&generator) {}
  GeneratorRef(const Generator* generator) : generator_(generator) {}

  /// The generator, or nullptr for the default one. A draw changes its state, never the handle.
  [[nodiscard]] Generator* get() const noexcept { return const_cast<Generator*>(generator_); }

 private:
  const Generator* generator_ = nullptr;
};

/// A generator argument in place of TensorOptions: `rand({2}, generator)`.
/// @since 0.1
template <class T>
concept GeneratorArgument = std::same_as<std::remove_cvref_t<T>, Generator> ||
                            std::same_as<std::remove_cvref_t<T>, Generator*> ||
                            std::same_as<std::remove_cvref_t<T>, const Generator*> ||
                            std::same_as<std::remove_cvref_t<T>, GeneratorRef>;

}  // namespace gantry
