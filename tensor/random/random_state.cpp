// Generators: seeds, offsets and their saved states.
#include <mutex>
#include <random>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/kernels/philox.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>

#include "tensor/check.hpp"
#include "tensor/random/captured_draws.hpp"
#include "tensor/random/generator_state.hpp"

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

constexpr std::string_view kSeedRemedy = "seed before a replay";

// Throws CaptureError that names `op`: replays would not repeat the call.
[[noreturn]] void throw_not_replayed(std::string_view op, const Generator& generator,
                                     std::string_view remedy) {
  throw CaptureError(
      fmt::format("{}: expected a call outside of the capture of a graph, but got one inside, "
                  "which replays would not repeat; {}",
                  op, remedy),
      generator.device().str());
}

void check_seed(std::string_view op, const Generator& generator) {
  if (detail::follows_captured_draws(generator)) throw_not_replayed(op, generator, kSeedRemedy);
}

void check_state(std::string_view op, const Tensor& state) {
  detail::check_defined(op, "state", state);
  if (state.is_cpu() && state.dtype() == DType::u8 && state.numel() == kStateBytes) return;
  throw InvalidArgument(fmt::format(
      "{}: expected a CPU tensor of 16 u8 elements, but got {} elements of type {} on {}", op,
      state.numel(), torch_name(state.dtype()), state.device().str()));
}

// Throws what a set_state would throw.
void check_set_state(std::string_view op, const Generator& generator, const Tensor& state) {
  check_state(op, state);
  if (!detail::follows_captured_draws(generator)) return;
  detail::check_unconditional(op, generator);
  const auto draws = detail::captured_draws(generator);
  if (draws != nullptr && draws->has_handed_out(state)) return;
  throw_not_replayed(op, generator,
                     "pass a state that get_state() returned in the same capture, unchanged");
}

}  // namespace

Generator::Generator(Device device, std::uint64_t seed)
    : state_(std::make_shared<State>(device.resolved(), seed)) {
  State& state = state_.of("Generator::Generator");
  state.birth = detail::recording_on(state.device);
}

Device Generator::device() const { return state_.of("Generator::device").device; }

void Generator::manual_seed(std::uint64_t seed) {
  State& state = state_.of("Generator::manual_seed");
  check_seed("manual_seed", *this);
  state.set({.seed = seed});
}

std::uint64_t Generator::seed() {
  State& state = state_.of("Generator::seed");
  check_seed("seed", *this);
  const std::uint64_t value = entropy();
  state.set({.seed = value});
  return value;
}

std::uint64_t Generator::initial_seed() const {
  return state_.of("Generator::initial_seed").position().seed;
}

std::uint64_t Generator::offset() const {
  const std::uint64_t offset = state_.of("Generator::offset").position().offset;
  const auto draws = detail::captured_draws(*this);
  return draws == nullptr ? offset : offset + draws->offset();
}

void Generator::set_offset(std::uint64_t offset) {
  State& state = state_.of("Generator::set_offset");
  if (detail::follows_captured_draws(*this)) {
    throw_not_replayed("set_offset", *this,
                       "move it by advance(), or back by set_state() with a state of the capture");
  }
  const std::lock_guard lock(state.mutex);
  state.current.offset = offset;
}

std::uint64_t Generator::advance(std::uint64_t count) {
  State& state = state_.of("Generator::advance");
  detail::check_unconditional("advance", *this);
  if (const auto draws = detail::captured_draws(*this)) {
    return state.position().offset + draws->skip(count);
  }
  return state.take(count).offset;
}

Generator::Position Generator::take(std::uint64_t count) {
  State& state = state_.of("Generator::take");
  if (detail::captured_draws(*this) != nullptr) {
    throw_not_replayed("take", *this, "call reserve(), whose position each replay advances");
  }
  return state.take(count);
}

PhiloxPosition Generator::reserve(std::uint64_t count) {
  static_cast<void>(state_.of("Generator::reserve"));
  return detail::next_draw(*this, count);
}

const void* Generator::identity() const { return &state_.of("Generator::identity"); }

Tensor Generator::get_state() const {
  const State& state = state_.of("Generator::get_state");
  const Tensor result = empty({kStateBytes}, {.dtype = DType::u8});
  auto* bytes = result.data_ptr<std::uint8_t>();
  const Position position = state.position();
  const auto draws = detail::captured_draws(*this);
  const std::uint64_t drawn = draws == nullptr ? 0 : draws->offset();
  write_little_endian(position.seed, bytes);
  write_little_endian(position.offset + drawn, bytes + 8);
  if (draws != nullptr) draws->hand_out(result, drawn);
  return result;
}

void Generator::set_state(const Tensor& state) {
  State& own = state_.of("Generator::set_state");
  check_set_state("set_state", *this, state);
  if (const auto draws = detail::captured_draws(*this)) return draws->rewind(state);
  const std::vector<std::uint8_t> bytes = state.to_vector<std::uint8_t>();
  own.set(
      {.seed = read_little_endian(bytes.data()), .offset = read_little_endian(bytes.data() + 8)});
}

Generator Generator::clone() const {
  const State& state = state_.of("Generator::clone");
  Generator result(state.device);
  State& copy = result.state_.of("Generator::clone");
  copy.set(state.position());
  if (const auto draws = detail::captured_draws(*this)) {
    copy.birth.reset();
    detail::follow_captured_draws(result, draws);
  }
  return result;
}

Generator Generator::fork(std::uint64_t rank) const {
  const State& state = state_.of("Generator::fork");
  if (detail::captured_draws(*this) != nullptr) {
    throw_not_replayed("fork", *this, "fork before the capture");
  }
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
    if (generators_[slot] == nullptr) {
      generators_[slot] = std::make_unique<Generator>(resolved);
      detail::GeneratorAccess::state(*generators_[slot], "default_generator").birth.reset();
    }
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

namespace {

void seed_everything(std::string_view op, std::uint64_t seed) {
  std::vector<Device> all{Device::cpu()};
  for (int i = 0; i < device_count(); ++i) all.push_back(Device::cuda(i));
  for (const Device device : all) check_seed(op, default_generator(device));
  for (const Device device : all) default_generator(device).manual_seed(seed);
}

}  // namespace

void manual_seed_all(std::uint64_t seed) { seed_everything("manual_seed_all", seed); }

std::uint64_t seed() { return current_generator().seed(); }

std::uint64_t seed_all() {
  const std::uint64_t value = entropy();
  seed_everything("seed_all", value);
  return value;
}

std::uint64_t initial_seed() { return current_generator().initial_seed(); }

Tensor get_rng_state(Device device) { return default_generator(device).get_state(); }

void set_rng_state(const Tensor& state, Device device) {
  Generator& generator = default_generator(device);
  check_set_state("set_rng_state", generator, state);
  generator.set_state(state);
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
  const auto generator = [](std::size_t i) -> Generator& {
    return default_generator(Device::cuda(static_cast<int>(i)));
  };
  for (std::size_t i = 0; i < states.size(); ++i) {
    check_set_state("set_rng_state_all", generator(i), states[i]);
  }
  for (std::size_t i = 0; i < states.size(); ++i) generator(i).set_state(states[i]);
}

}  // namespace gantry
