// The state that the copies of one Generator share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include <gantry/tensor/random.hpp>

#include "streams/graphs/graph_recording.hpp"

namespace gantry {

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
  // The capture in which the generator was made from a seed. Its position there is the same at
  // each replay.
  std::weak_ptr<GraphRecording> birth;
  mutable std::mutex mutex;
  Position current;
};

namespace detail {

struct GeneratorAccess {
  using State = Generator::State;

  // Throws InvalidArgument that names `member` if the generator was moved from.
  static State& state(const Generator& generator, std::string_view member) {
    return generator.state_.of(member);
  }
};

}  // namespace detail
}  // namespace gantry
