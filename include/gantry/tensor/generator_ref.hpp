#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <gantry/core/macros.hpp>

namespace gantry {

class Generator;

/// A parameter that says which generator a random operation draws from: a Generator, a pointer to
/// one, or nothing (also a null pointer), which means the default generator of the tensor's device.
///
/// Borrows the generator: meant for parameters only, never to be stored.
class GeneratorRef {
 public:
  GeneratorRef() = default;
  /// A reference to `generator`, or to the default generator.
  GeneratorRef(std::nullptr_t) {}
  GeneratorRef(Generator& generator) : generator_(&generator) {}
  GeneratorRef(Generator&& generator) : generator_(&generator) {}
  GeneratorRef(Generator* generator) : generator_(generator) {}

  /// The generator, or nullptr for the default one.
  [[nodiscard]] Generator* get() const { return generator_; }

 private:
  Generator* generator_ = nullptr;
};

/// A generator where options may be left out: `rand({2}, generator)`.
template <class T>
concept GeneratorArgument = std::same_as<std::remove_cvref_t<T>, Generator> ||
                            std::same_as<std::remove_cvref_t<T>, Generator*> ||
                            std::same_as<std::remove_cvref_t<T>, GeneratorRef>;

}  // namespace gantry
