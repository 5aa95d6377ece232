#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

// Copies `source` over `target` and reports bytes of payload per second.
void copy(benchmark::State& state, Tensor target, const Tensor& source) {
  time_completion(state, 20, [&] { target.copy_(source, {.non_blocking = true}); });
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(source.nbytes()));
}

}  // namespace

void register_copy() {
  const std::int64_t largest = platform() == Platform::simulated ? 16 << 20 : 256 << 20;
  for (const std::int64_t bytes : {std::int64_t{4096}, std::int64_t{1} << 20, largest}) {
    const std::string size = std::to_string(bytes);
    const Shape shape{bytes / 4};
    add("copy/h2d_pinned/" + size, [shape](benchmark::State& state) {
      copy(state, empty(shape, {.device = "cuda:0"}), zeros(shape, {.pinned = true}));
    });
    add("copy/d2h_pinned/" + size, [shape](benchmark::State& state) {
      copy(state, empty(shape, {.pinned = true}), zeros(shape, {.device = "cuda:0"}));
    });
    add("copy/d2d/" + size, [shape](benchmark::State& state) {
      copy(state, empty(shape, {.device = "cuda:0"}), zeros(shape, {.device = "cuda:0"}));
    });
    if (device_count() > 1) {
      add("copy/peer/" + size, [shape](benchmark::State& state) {
        copy(state, empty(shape, {.device = "cuda:1"}), zeros(shape, {.device = "cuda:0"}));
      });
    }
    add("copy/cast_f32_f16/" + size, [shape](benchmark::State& state) {
      copy(state, empty(shape, {.dtype = f16, .device = "cuda:0"}),
           zeros(shape, {.device = "cuda:0"}));
    });
  }
  const std::int64_t side = platform() == Platform::simulated ? 1024 : 8192;
  add("copy/transposed/" + std::to_string(side), [side](benchmark::State& state) {
    copy(state, empty({side, side}, {.device = "cuda:0"}),
         zeros({side, side}, {.device = "cuda:0"}).t());
  });
}

}  // namespace gantry::benchmarks
