#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// A source of random numbers for one device: Philox4x32-10 at a seed and an offset.
///
/// Element i of a draw depends on (seed, offset, i) only and each draw advances the offset by one,
/// so the same seed gives the same numbers on every GPU, on the simulator and on the CPU.
///
/// A Generator is a handle: copies draw from one state. clone() makes an independent one. After a
/// move every member of the source, and every draw from it, throws InvalidArgument.
///
/// Thread safety: all members from any thread.
class Generator {
 public:
  /// Seed of a generator that was never seeded.
  static constexpr std::uint64_t kDefaultSeed = 67280421310721;

  /// A generator for tensors of `device`, at `seed` and offset 0.
  explicit Generator(Device device = Device::cpu(), std::uint64_t seed = kDefaultSeed);

  /// The device whose tensors it fills.
  [[nodiscard]] Device device() const;
  /// Starts again at `seed`, offset 0.
  void manual_seed(std::uint64_t seed);
  /// Starts again at a seed from the operating system, and returns it.
  std::uint64_t seed();
  /// The seed in use.
  [[nodiscard]] std::uint64_t initial_seed() const;
  /// Number of draws since seeding.
  [[nodiscard]] std::uint64_t offset() const;
  /// Continues at `offset` of the current seed.
  void set_offset(std::uint64_t offset);
  /// Takes the next `count` offsets for the caller's own kernels; returns the first.
  std::uint64_t advance(std::uint64_t count = 1);
  /// A seed and an offset that belong together.
  struct Position {
    std::uint64_t seed = 0;    ///< key of the generator
    std::uint64_t offset = 0;  ///< number of draws before
  };
  /// As advance, and says at which seed: in one step, whatever other threads seed meanwhile.
  Position take(std::uint64_t count = 1);
  /// Seed and offset as 16 little-endian bytes: a CPU tensor of u8.
  [[nodiscard]] Tensor get_state() const;
  /// Throws: InvalidArgument unless `state` is a CPU u8 tensor of 16 elements.
  void set_state(const Tensor& state);
  /// A generator of its own with the same seed and offset.
  [[nodiscard]] Generator clone() const;
  /// An independent generator for one of several data-parallel ranks; the same rank always gets the
  /// same one.
  [[nodiscard]] Generator fork(std::uint64_t rank) const;

 private:
  struct State;
  detail::CheckedPtr<std::shared_ptr<State>> state_;
};

/// The generator that operations on tensors of `device` draw from by default.
[[nodiscard]] Generator& default_generator(Device device = Device::cuda());

/// Seeds the current device's generator; without a platform, the CPU's.
void manual_seed(std::uint64_t seed);
/// Seeds the generators of the CPU and of every device.
void manual_seed_all(std::uint64_t seed);
/// Seeds the current device's generator (without a platform, the CPU's) from the operating system
/// and returns the seed.
std::uint64_t seed();
/// Seeds the CPU's and every device's generator with one seed from the operating system.
std::uint64_t seed_all();
/// Seed of the current device's generator; without a platform, the CPU's.
[[nodiscard]] std::uint64_t initial_seed();
/// State of the default generator of `device`: 16 bytes, CPU u8.
[[nodiscard]] Tensor get_rng_state(Device device = Device::cuda());
/// Sets the state of the default generator of `device`.
/// Throws: InvalidArgument unless `state` is a CPU u8 tensor of 16 elements.
void set_rng_state(const Tensor& state, Device device = Device::cuda());
/// States of all devices, in index order.
[[nodiscard]] std::vector<Tensor> get_rng_state_all();
/// Sets the states of all devices, in index order. Throws: as set_rng_state.
void set_rng_state_all(const std::vector<Tensor>& states);

// Random tensors. Options and errors as in factories.hpp; `generator` must belong to the tensor's
// device; without one, its default generator is used. It may stand where the options would.
/// Uniform on [0, 1).
[[nodiscard]] Tensor rand(const Shape& sizes, const TensorOptions& options = {},
                          GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor rand(const Shape& sizes, T option, GeneratorRef generator = {}) {
  return rand(sizes, detail::only(option), generator);
}
template <GeneratorArgument G>
[[nodiscard]] Tensor rand(const Shape& sizes, G&& generator) {
  return rand(sizes, TensorOptions(), std::forward<G>(generator));
}
/// Standard normal.
[[nodiscard]] Tensor randn(const Shape& sizes, const TensorOptions& options = {},
                           GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randn(const Shape& sizes, T option, GeneratorRef generator = {}) {
  return randn(sizes, detail::only(option), generator);
}
template <GeneratorArgument G>
[[nodiscard]] Tensor randn(const Shape& sizes, G&& generator) {
  return randn(sizes, TensorOptions(), std::forward<G>(generator));
}
/// Integers on [low, high). DTypes: i64 by default. Throws: InvalidArgument unless low < high.
[[nodiscard]] Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes,
                             const TensorOptions& options = {}, GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes, T option,
                             GeneratorRef generator = {}) {
  return randint(low, high, sizes, detail::only(option), generator);
}
template <std::integral T, GeneratorArgument G>  // `high` is no list: those are sizes
[[nodiscard]] Tensor randint(std::int64_t low, T high, const Shape& sizes, G&& generator) {
  return randint(low, high, sizes, TensorOptions(), std::forward<G>(generator));
}
/// Integers on [0, high).
[[nodiscard]] Tensor randint(std::int64_t high, const Shape& sizes,
                             const TensorOptions& options = {}, GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randint(std::int64_t high, const Shape& sizes, T option,
                             GeneratorRef generator = {}) {
  return randint(high, sizes, detail::only(option), generator);
}
template <GeneratorArgument G>
[[nodiscard]] Tensor randint(std::int64_t high, const Shape& sizes, G&& generator) {
  return randint(high, sizes, TensorOptions(), std::forward<G>(generator));
}
/// A permutation of 0 … n-1. DTypes: i64 by default.
[[nodiscard]] Tensor randperm(std::int64_t n, const TensorOptions& options = {},
                              GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randperm(std::int64_t n, T option, GeneratorRef generator = {}) {
  return randperm(n, detail::only(option), generator);
}
template <GeneratorArgument G>
[[nodiscard]] Tensor randperm(std::int64_t n, G&& generator) {
  return randperm(n, TensorOptions(), std::forward<G>(generator));
}
/// 1 with the probability that the element of `probability` gives, else 0; its shape, dtype,
/// device.
[[nodiscard]] Tensor bernoulli(const Tensor& probability, GeneratorRef generator = {});
/// Uniform on [0, 1), in the shape of `other`. DTypes, device: the other's unless options say more.
[[nodiscard]] Tensor rand_like(const Tensor& other, const TensorOptions& options = {},
                               GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor rand_like(const Tensor& other, T option, GeneratorRef generator = {}) {
  return rand_like(other, detail::only(option), generator);
}
/// Standard normal, else as rand_like.
[[nodiscard]] Tensor randn_like(const Tensor& other, const TensorOptions& options = {},
                                GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randn_like(const Tensor& other, T option, GeneratorRef generator = {}) {
  return randn_like(other, detail::only(option), generator);
}
/// Integers on [low, high), low is 0 by default; else as rand_like.
[[nodiscard]] Tensor randint_like(const Tensor& other, std::int64_t low, std::int64_t high,
                                  const TensorOptions& options = {}, GeneratorRef generator = {});
[[nodiscard]] inline Tensor randint_like(const Tensor& other, std::int64_t high,
                                         const TensorOptions& options = {},
                                         GeneratorRef generator = {}) {
  return randint_like(other, 0, high, options, generator);
}
template <TensorOption T>
[[nodiscard]] Tensor randint_like(const Tensor& other, std::int64_t low, std::int64_t high,
                                  T option, GeneratorRef generator = {}) {
  return randint_like(other, low, high, detail::only(option), generator);
}

}  // namespace gantry
