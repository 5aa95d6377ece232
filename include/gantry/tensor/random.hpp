#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/kernels/philox.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

namespace detail {
struct GeneratorAccess;
}

/// A random number generator for one device: Philox4x32-10 at a seed and an offset.
///
/// Each draw advances the offset by one. Element i of a draw depends on (seed, offset, i) only. The
/// same seed therefore gives the same numbers on every GPU, on the simulator and on the CPU.
///
/// A Generator is a handle: copies share one state; clone() makes an independent generator. Members
/// of a moved-from Generator, and draws from it, throw InvalidArgument.
///
/// In the capture of a Graph, a draw takes place at each replay instead. A replay draws the numbers
/// that the same eager work would draw at that moment. It advances the offset by the same amount.
/// The capture itself does not advance it, also if it fails. In the capture offset() and
/// get_state() report what an eager program would find. advance() holds at each replay, and
/// set_state() with a tensor that get_state() returned in the same capture goes back there at each
/// replay. Calls that replays would not repeat throw CaptureError: new seeds, other states,
/// set_offset(), take() and fork(). The capture is that of the current stream of device(). A clone
/// that is made in the capture follows this generator there. A generator that is made from a seed
/// in the capture draws the same numbers at each replay.
///
/// Thread safety: all members from any thread.
/// @code
/// Generator generator("cuda:0", 7);
/// const Tensor x = rand({4}, {.device = "cuda:0"}, generator);
/// Generator own = generator.fork(1);  // independent numbers
/// @endcode
/// @since 0.1
class GANTRY_API Generator {
 public:
  /// The seed of a new generator.
  static constexpr std::uint64_t kDefaultSeed = 67280421310721;

  /// A generator for tensors of `device`, at `seed` and offset 0.
  explicit Generator(Device device = Device::cpu(), std::uint64_t seed = kDefaultSeed);

  /// The device whose tensors this generator fills.
  [[nodiscard]] Device device() const;
  /// Sets the seed, and the offset to 0. Throws: CaptureError in a capture.
  void manual_seed(std::uint64_t seed);
  /// Sets a random seed from the operating system, and the offset to 0. Returns the seed.
  /// Throws: CaptureError in a capture.
  std::uint64_t seed();
  /// The current seed.
  [[nodiscard]] std::uint64_t initial_seed() const;
  /// The number of draws since seeding.
  [[nodiscard]] std::uint64_t offset() const;
  /// Continues at `offset` of the current seed. Throws: CaptureError in a capture, where advance()
  /// and set_state() move the offset.
  void set_offset(std::uint64_t offset);
  /// Leaves out the next `count` offsets. Returns the first.
  /// Throws: CaptureError in the body of graph_if or graph_while.
  std::uint64_t advance(std::uint64_t count = 1);
  /// A consistent pair of seed and offset.
  struct Position {
    std::uint64_t seed = 0;    ///< key of the generator
    std::uint64_t offset = 0;  ///< number of earlier draws
  };
  /// As advance(), but returns seed and first offset as a consistent pair. Throws: CaptureError in
  /// a capture, where reserve() takes its place.
  Position take(std::uint64_t count = 1);
  /// Reserves the next `count` offsets for a kernel of the caller on the current stream of
  /// device(). The kernel calls resolved() of the result. Each replay of a captured kernel finds
  /// new offsets. Throws: CaptureError in the body of graph_if or graph_while, and in a capture
  /// without a Graph.
  PhiloxPosition reserve(std::uint64_t count = 1);
  /// Seed and offset as 16 little-endian bytes, in a CPU u8 tensor.
  [[nodiscard]] Tensor get_state() const;
  /// Sets seed and offset to a state of get_state().
  /// Throws: InvalidArgument unless `state` is a CPU u8 tensor of 16 elements. CaptureError in a
  /// capture, unless get_state() returned `state` in that capture, and in the body of graph_if or
  /// graph_while.
  void set_state(const Tensor& state);
  /// An independent generator with the same seed and offset.
  [[nodiscard]] Generator clone() const;
  /// An independent generator for a data-parallel rank, at offset 0. It depends only on this
  /// generator's seed and on `rank`: equal ranks get equal generators.
  /// Throws: CaptureError in a capture.
  [[nodiscard]] Generator fork(std::uint64_t rank) const;

  /// The address of the shared state: equal for copies of one generator, and different for all
  /// other existing generators.
  [[nodiscard]] const void* identity() const;

 private:
  friend struct detail::GeneratorAccess;
  struct GANTRY_LOCAL State;
  detail::CheckedPtr<std::shared_ptr<State>> state_;
};

/// The default generator of `device`.
/// @since 0.1
[[nodiscard]] GANTRY_API Generator& default_generator(Device device = Device::cuda());

// Functions that set seeds or states throw CaptureError in a capture, as the members of Generator
// do, and then change no generator.
/// Seeds the current device's default generator, or the CPU's if there is no platform.
/// @since 0.1
GANTRY_API void manual_seed(std::uint64_t seed);
/// Seeds the default generators of the CPU and of every device.
/// @code
/// manual_seed_all(1);
/// const Tensor x = randn({4}, "cuda:0");  // the same on every platform
/// @endcode
/// @since 0.1
GANTRY_API void manual_seed_all(std::uint64_t seed);
/// Seeds the current device's default generator, or the CPU's if there is no platform, from the
/// operating system. Returns the seed.
/// @since 0.1
GANTRY_API std::uint64_t seed();
/// Seeds the default generators of the CPU and of every device with one seed from the operating
/// system. Returns the seed.
/// @since 0.1
GANTRY_API std::uint64_t seed_all();
/// The seed of the current device's default generator, or the CPU's if there is no platform.
/// @since 0.1
[[nodiscard]] GANTRY_API std::uint64_t initial_seed();
/// The state of the default generator of `device`: a CPU u8 tensor of 16 elements.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor get_rng_state(Device device = Device::cuda());
/// Sets the state of the default generator of `device`.
/// Throws: InvalidArgument unless `state` is a CPU u8 tensor of 16 elements; CaptureError as
/// Generator::set_state().
/// @since 0.1
GANTRY_API void set_rng_state(const Tensor& state, Device device = Device::cuda());
/// The states of all devices' default generators, in index order.
/// @since 0.1
[[nodiscard]] GANTRY_API std::vector<Tensor> get_rng_state_all();
/// Sets the states of all devices' default generators, in index order. Throws: InvalidArgument
/// unless there is one state per device; as set_rng_state.
/// @since 0.1
GANTRY_API void set_rng_state_all(const std::vector<Tensor>& states);

// Random tensors. Options and errors are those of factories.hpp. `generator` is on the tensor's
// device; the default is that device's default generator. It may take the place of the options, or
// stand before them, as in libtorch.
/// Uniform on [0, 1).
/// Example: `const Tensor x = rand({2, 3}, "cuda:0");  // in [0, 1)`
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor rand(const Shape& sizes, const TensorOptions& options = {},
                                     GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor rand(const Shape& sizes, T option, GeneratorRef generator = {}) {
  return rand(sizes, detail::only(option), generator);
}
template <GeneratorArgument G, detail::AnyOptions O = TensorOptions>
[[nodiscard]] Tensor rand(const Shape& sizes, G&& generator, O options = {}) {
  return rand(sizes, detail::only(options), std::forward<G>(generator));
}
/// Standard normal.
/// Example: `const Tensor x = randn({2, 3}, "cuda:0");`
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randn(const Shape& sizes, const TensorOptions& options = {},
                                      GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randn(const Shape& sizes, T option, GeneratorRef generator = {}) {
  return randn(sizes, detail::only(option), generator);
}
template <GeneratorArgument G, detail::AnyOptions O = TensorOptions>
[[nodiscard]] Tensor randn(const Shape& sizes, G&& generator, O options = {}) {
  return randn(sizes, detail::only(options), std::forward<G>(generator));
}
/// Uniform integers on [low, high). DTypes: i64 by default. Throws: InvalidArgument unless low <
/// high.
/// Example: `const Tensor dice = randint(1, 7, {10}, "cuda:0");`
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes,
                                        const TensorOptions& options = {},
                                        GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes, T option,
                             GeneratorRef generator = {}) {
  return randint(low, high, sizes, detail::only(option), generator);
}
template <std::integral T, GeneratorArgument G, detail::AnyOptions O = TensorOptions>
// A list in place of `high` is `sizes`.
[[nodiscard]] Tensor randint(std::int64_t low, T high, const Shape& sizes, G&& generator,
                             O options = {}) {
  return randint(low, high, sizes, detail::only(options), std::forward<G>(generator));
}
/// Uniform integers on [0, high).
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randint(std::int64_t high, const Shape& sizes,
                                        const TensorOptions& options = {},
                                        GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randint(std::int64_t high, const Shape& sizes, T option,
                             GeneratorRef generator = {}) {
  return randint(high, sizes, detail::only(option), generator);
}
template <GeneratorArgument G, detail::AnyOptions O = TensorOptions>
[[nodiscard]] Tensor randint(std::int64_t high, const Shape& sizes, G&& generator, O options = {}) {
  return randint(high, sizes, detail::only(options), std::forward<G>(generator));
}
/// A permutation of 0 … n-1. DTypes: i64 by default. Throws: InvalidArgument for a negative n, or a
/// dtype that cannot hold n-1.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randperm(std::int64_t n, const TensorOptions& options = {},
                                         GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randperm(std::int64_t n, T option, GeneratorRef generator = {}) {
  return randperm(n, detail::only(option), generator);
}
template <GeneratorArgument G, detail::AnyOptions O = TensorOptions>
[[nodiscard]] Tensor randperm(std::int64_t n, G&& generator, O options = {}) {
  return randperm(n, detail::only(options), std::forward<G>(generator));
}
/// Element by element, 1 with the probability from `probability`, else 0. The result has the shape,
/// dtype and device of `probability`.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor bernoulli(const Tensor& probability, GeneratorRef generator = {});
/// Uniform numbers on [0, 1), in the shape of `other`. Dtype and device default to those of
/// `other`.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor rand_like(const Tensor& other, const TensorOptions& options = {},
                                          GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor rand_like(const Tensor& other, T option, GeneratorRef generator = {}) {
  return rand_like(other, detail::only(option), generator);
}
/// As rand_like, with standard normal numbers.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randn_like(const Tensor& other, const TensorOptions& options = {},
                                           GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor randn_like(const Tensor& other, T option, GeneratorRef generator = {}) {
  return randn_like(other, detail::only(option), generator);
}
/// As rand_like, with uniform integers on [low, high). `low` defaults to 0.
/// @since 0.1
[[nodiscard]] GANTRY_API Tensor randint_like(const Tensor& other, std::int64_t low,
                                             std::int64_t high, const TensorOptions& options = {},
                                             GeneratorRef generator = {});
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
template <TensorOption T>
[[nodiscard]] Tensor randint_like(const Tensor& other, std::int64_t high, T option,
                                  GeneratorRef generator = {}) {
  return randint_like(other, 0, high, detail::only(option), generator);
}

}  // namespace gantry
