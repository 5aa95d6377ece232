#include <cmath>
#include <random>

#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

void register_allocation() {
  // A block that comes back at once: the hit path.
  for (const std::size_t bytes :
       {std::size_t{512}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20}) {
    add("alloc/pair/" + std::to_string(bytes), [bytes](benchmark::State& state) {
      const Stream stream = Stream::current(Device::cuda(0));
      time_host(state, [&] { benchmark::DoNotOptimize(memory::allocate(bytes, stream)); });
    });
  }
  // 1,000 live blocks of 512 B to 8 MiB (log-uniform); one is freed and another one made.
  add("alloc/live_set", [](benchmark::State& state) {
    const Stream stream = Stream::current(Device::cuda(0));
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> exponent(9.0, 23.0);
    std::vector<std::size_t> sizes(8192);
    for (std::size_t& size : sizes) size = static_cast<std::size_t>(std::exp2(exponent(random)));
    // Simulated devices hold 1 GiB by default.
    const std::size_t count = platform() == Platform::simulated ? 200 : 1000;
    std::vector<memory::Buffer> live(count);
    std::size_t next = 0;
    for (memory::Buffer& buffer : live) {
      buffer = memory::allocate(sizes[next++ % sizes.size()], stream);
    }
    std::size_t victim = 0;
    time_host(state, [&] {
      victim = (victim * 5 + 7) % live.size();
      live[victim].reset();
      live[victim] = memory::allocate(sizes[next++ % sizes.size()], stream);
    });
  });
  add("alloc/pinned_pair/1048576", [](benchmark::State& state) {
    time_host(state, [&] { benchmark::DoNotOptimize(memory::pinned(1 << 20)); });
  });
}

}  // namespace gantry::benchmarks
