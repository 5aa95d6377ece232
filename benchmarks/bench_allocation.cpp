#include <memory>

#include "benchmarks/alloc/peer.hpp"
#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

Device device() { return Device::cuda(0); }

// The calls of a peer that LiveSet uses.
struct BlockPeer {
  using Handle = memory::Block;
  Handle allocate(std::size_t bytes) { return allocator.allocate(stream, bytes); }
  void free(Handle& handle, std::size_t) { allocator.deallocate(handle); }

  memory::Allocator& allocator = memory::allocator(device());
  Stream stream = Stream::default_stream(device());
};

// Throughput of eight threads, as the time of one call over all of them.
template <class MakeCall>
void time_eight_threads(benchmark::State& state, MakeCall make_call) {
  for (auto _ : state) {
    state.SetIterationTime(time_threads_once(8, 2000, make_call) * 1e-9);
  }
}

}  // namespace

void register_allocation() {
  // A block that comes back at once: the hit path, through raw pointers and through blocks.
  for (const std::size_t bytes : pair_sizes()) {
    add("alloc/pair/" + std::to_string(bytes), [bytes](benchmark::State& state) {
      const Stream stream = Stream::default_stream(device());
      time_host(state, [&] { memory::deallocate_raw(memory::allocate_raw(bytes, stream)); });
    });
    add("alloc/block_pair/" + std::to_string(bytes), [bytes](benchmark::State& state) {
      BlockPeer peer;
      time_host(state, [&] {
        memory::Block block = peer.allocate(bytes);
        benchmark::DoNotOptimize(block);
        peer.free(block, bytes);
      });
    });
  }
  // The same on a stream that a program may capture: the driver is asked whether it does.
  add("alloc/stream_pair/4096", [](benchmark::State& state) {
    const Stream stream = Stream::from_pool(device());
    time_host(state, [&] { memory::deallocate_raw(memory::allocate_raw(4096, stream)); });
  });
  // 1,000 live blocks of 512 B to 8 MiB (log-uniform); a random one is replaced.
  add("alloc/live_set", [](benchmark::State& state) {
    BlockPeer peer;
    // Simulated devices hold 1 GiB by default.
    const std::size_t count = platform() == Platform::simulated ? 200 : 1000;
    LiveSet<BlockPeer> set(peer, count, live_set_steps(count));
    time_host(state, [&] { set.step(); });
  });
  add("alloc/threads8/pair_4096", [](benchmark::State& state) {
    BlockPeer peer;
    time_eight_threads(state, [&peer](int) {
      return [&peer] {
        memory::Block block = peer.allocate(4096);
        peer.free(block, 4096);
      };
    });
  });
  add("alloc/threads8/live_set_16", [](benchmark::State& state) {
    BlockPeer peer;
    time_eight_threads(state, [&peer](int thread) {
      auto set = std::make_shared<LiveSet<BlockPeer>>(
          peer, 16, thread_steps(static_cast<std::uint64_t>(thread)));
      return [set] { set->step(); };
    });
  });
  add("alloc/pinned_pair/1048576", [](benchmark::State& state) {
    time_host(state, [&] { benchmark::DoNotOptimize(memory::pinned(1 << 20)); });
  });
}

}  // namespace gantry::benchmarks
