// Synthetic workloads: sequences that need no log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/replay/allocation_sequence.hpp"

namespace gantry::replay {

/// RMM's random_allocations benchmark: 2·`allocations` steps; a size of 1 byte to `max_mib` MiB is
/// drawn at each. The step allocates with a chance of 73 % while fewer than `allocations` were made
/// and the live bytes stay below 16,000 MiB (always when nothing is live); else it frees a random
/// live block. The generator is std::default_random_engine with its default seed, as there.
[[nodiscard]] AllocationSequence rmm_random_allocations(std::size_t allocations,
                                                        std::size_t max_mib);

/// A training-like loop.
struct TrainingShape {
  int layers = 32;
  int steps = 50;
  /// Bytes of one layer's activations vary from step to step by up to this fraction.
  double jitter = 0.5;
  /// Bytes of one layer's parameters.
  std::uint64_t layer_bytes = std::uint64_t{48} << 20;
  /// Mean bytes of one layer's largest activation.
  std::uint64_t activation_bytes = std::uint64_t{32} << 20;
  std::uint64_t seed = 1;
};

/// Parameters and two optimizer states per layer live for the whole run. Each step, one shape is
/// drawn for the batch; the forward pass keeps four activations per layer and drops two
/// temporaries; the backward pass, from the last layer, makes gradients, frees the activations and
/// keeps the parameters' gradients, which the optimizer frees at the end of the step.
[[nodiscard]] AllocationSequence training_loop(const TrainingShape& shape);

/// `blocks` live blocks of 512 B to 8 MiB (log-uniform); `replacements` times a random one is freed
/// and another one allocated.
[[nodiscard]] AllocationSequence random_live_set(std::size_t blocks,
                                                 std::size_t replacements = 100'000,
                                                 std::uint64_t seed = 1);

/// "rmm:1000,64", "training:layers=32,jitter=0.5,steps=50,seed=1,activation-mib=32,layer-mib=48",
/// "liveset:1000,replacements=100000,seed=1". Throws: InvalidArgument that names the expected form.
[[nodiscard]] AllocationSequence make_workload(std::string_view text);

}  // namespace gantry::replay
