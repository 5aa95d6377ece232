// Generators: seeds, offsets and their saved states.
#include <mutex>
#include <random>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/kernels/philox.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>

#include "tensor/check.hpp"

namespace gantry {

namespace {

constexpr std::int64_t kStateBytes = 16;

std::uint64_t entropy() {
  std::random_device source;
  return static_cast<std::uint64_t>(source()) << 32 | source();
}

void write_little_endian(std::uint64_t value, std::uint8_t* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t read_little_endian(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

struct Generator::State {
  State(Device where, std::uint64_t seed) : device(where), current{.seed = seed} {}

  [[nodiscard]] Position position() const {
    const std::lock_guard lock(mutex);
    return current;
  }
  void set(Position position) {
    const std::lock_guard lock(mutex);
    current = position;
  }
  Position take(std::uint64_t count) {
    const std::lock_guard lock(mutex);
    const Position first = current;
    current.offset += count;
    return first;
  }

  const Device device;
  mutable std::mutex mutex;
  Position current;
};

Generator::Generator(Device device, std::uint64_t seed)
    : state_(std::make_shared<State>(device.resolved(), seed)) {}

Device Generator::device() const { return state_.of("Generator::device").device; }

void Generator::manual_seed(std::uint64_t seed) {
  state_.of("Generator::manual_seed").set({.seed = seed});
}

std::uint64_t Generator::seed() {
  State& state = state_.of("Generator::seed");
  const std::uint64_t value = entropy();
  state.set({.seed = value});
  return value;
}

std::uint64_t Generator::initial_seed() const {
  return state_.of("Generator::initial_seed").position().seed;
}

std::uint64_t Generator::offset() const { return state_.of("Generator::offset").position().offset; }

void Generator::set_offset(std::uint64_t offset) {
  State& state = state_.of("Generator::set_offset");
  const std::lock_guard lock(state.mutex);
  state.current.offset = offset;
}

std::uint64_t Generator::advance(std::uint64_t count) {
  return state_.of("Generator::advance").take(count).offset;
}

Generator::Position Generator::take(std::uint64_t count) {
  return state_.of("Generator::take").take(count);
}

const void* Generator::identity() const { return &state_.of("Generator::identity"); }

Tensor Generator::get_state() const {
  const State& state = state_.of("Generator::get_state");
  const Tensor result = empty({kStateBytes}, {.dtype = DType::u8});
  auto* bytes = result.data_ptr<std::uint8_t>();
  const Position position = state.position();
  write_little_endian(position.seed, bytes);
  write_little_endian(position.offset, bytes + 8);
  return result;
}

void Generator::set_state(const Tensor& state) {
  State& own = state_.of("Generator::set_state");
  detail::check_defined("set_state", "state", state);
  if (!state.is_cpu() || state.dtype() != DType::u8 || state.numel() != kStateBytes) {
    throw InvalidArgument(fmt::format(
        "set_state: expected a CPU tensor of 16 u8 elements, but got {} elements of type {} on {}",
        state.numel(), torch_name(state.dtype()), state.device().str()));
  }
  const std::vector<std::uint8_t> bytes = state.to_vector<std::uint8_t>();
  own.set(
      {.seed = read_little_endian(bytes.data()), .offset = read_little_endian(bytes.data() + 8)});
}

Generator Generator::clone() const {
  const State& state = state_.of("Generator::clone");
  Generator result(state.device);
  result.state_.of("Generator::clone").set(state.position());
  return result;
}

Generator Generator::fork(std::uint64_t rank) const {
  const State& state = state_.of("Generator::fork");
  // The new seed is a draw of this generator at an offset that no operation uses.
  const Philox4 words = philox4x32_10(state.position().seed, rank, ~std::uint64_t{0});
  return Generator(state.device, static_cast<std::uint64_t>(words.y) << 32 | words.x);
}

namespace {

// The default generators of the CPU and of every device. Made at first use and never destroyed,
// because static objects of user code may draw at exit.
class DefaultGenerators {
 public:
  static DefaultGenerators& instance() {
    static auto* const all = new DefaultGenerators;
    return *all;
  }

  Generator& of(Device device) {
    const Device resolved = device.resolved();
    const std::lock_guard lock(mutex_);
    const std::size_t slot = resolved.is_cpu() ? 0 : static_cast<std::size_t>(resolved.index) + 1;
    if (generators_.size() <= slot) generators_.resize(slot + 1);
    if (generators_[slot] == nullptr) generators_[slot] = std::make_unique<Generator>(resolved);
    return *generators_[slot];
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Generator>> generators_;
};

Generator& current_generator() {
  return default_generator(is_available() ? current_device() : Device::cpu());
}

}  // namespace

Generator& default_generator(Device device) { return DefaultGenerators::instance().of(device); }

void manual_seed(std::uint64_t seed) { current_generator().manual_seed(seed); }

void manual_seed_all(std::uint64_t seed) {
  default_generator(Device::cpu()).manual_seed(seed);
  for (int i = 0; i < device_count(); ++i) default_generator(Device::cuda(i)).manual_seed(seed);
}

std::uint64_t seed() { return current_generator().seed(); }

std::uint64_t seed_all() {
  const std::uint64_t value = entropy();
  manual_seed_all(value);
  return value;
}

std::uint64_t initial_seed() { return current_generator().initial_seed(); }

Tensor get_rng_state(Device device) { return default_generator(device).get_state(); }

void set_rng_state(const Tensor& state, Device device) {
  default_generator(device).set_state(state);
}

std::vector<Tensor> get_rng_state_all() {
  std::vector<Tensor> states;
  for (int i = 0; i < device_count(); ++i) states.push_back(get_rng_state(Device::cuda(i)));
  return states;
}

void set_rng_state_all(const std::vector<Tensor>& states) {
  if (static_cast<int>(states.size()) != device_count()) {
    throw InvalidArgument(fmt::format("set_rng_state_all: expected {} states, but got {}",
                                      device_count(), states.size()));
  }
  // Temporary generators validate all states first: a malformed one changes nothing.
  for (const Tensor& state : states) Generator(Device::cpu()).set_state(state);
  for (std::size_t i = 0; i < states.size(); ++i) {
    set_rng_state(states[i], Device::cuda(static_cast<int>(i)));
  }
}

}  // namespace gantry
