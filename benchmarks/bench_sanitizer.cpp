#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

// Host time of one operation with the stream sanitizer off and on. The peer is torch's sanitizer:
// peer_sanitizer.py. Registered last: the first `on` puts the sanitizer's driver in front for good.
void register_sanitizer() {
  static const auto options = [] { return TensorOptions{.dtype = f32, .device = Device::cuda(0)}; };
  for (const bool is_on : {false, true}) {
    const std::string prefix = std::string("sanitizer/") + (is_on ? "on/" : "off/");
    const auto add_in_mode = [&](const char* name, auto body) {
      add(prefix + name, [is_on, body](benchmark::State& state) {
        if (is_on) sanitizer::enable(sanitizer::Mode::warn);
        body(state);
        if (is_on) sanitizer::enable(sanitizer::Mode::off);
      });
    };
    add_in_mode("add_", [](benchmark::State& state) {
      const Tensor a = ones({16}, options());
      const Tensor b = ones({16}, options());
      time_host(state, [&] { a.add_(b); });
    });
    add_in_mode("add", [](benchmark::State& state) {
      const Tensor a = ones({16}, options());
      const Tensor b = ones({16}, options());
      time_host(state, [&] { benchmark::DoNotOptimize(a.add(b)); });
    });
    add_in_mode("copy_", [](benchmark::State& state) {
      const Tensor a = ones({16}, options());
      const Tensor b = ones({16}, options());
      time_host(state, [&] { a.copy_(b); });
    });
    add_in_mode("wait", [](benchmark::State& state) {
      const Stream first = Stream::from_pool();
      const Stream second = Stream::from_pool();
      time_host(state, [&] { second.wait(first); });
    });
  }
}

}  // namespace gantry::benchmarks
