// A kernel of a user whose threads race, or do not. ThreadSanitizer must tell the two apart.
//
// launch_race_program <case>; the names of the racing cases begin with "unordered".
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include <gantry/kernels/atomic.hpp>
#include <gantry/kernels/launch.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/jit.hpp>

namespace {

using gantry::Block;
using gantry::Stream;

constexpr std::int64_t kThreads = 32;

struct Memory {
  gantry::Tensor tensor = gantry::zeros({1024}, {.dtype = gantry::i64, .device = "cuda:0"});
  std::int64_t* data = tensor.data_ptr<std::int64_t>();
  Stream stream = Stream::current("cuda:0");
};

// Each thread writes its element and reads its neighbour's, with and without a barrier between.
template <bool kHasBarrier>
void neighbours(const Memory& m) {
  constexpr std::size_t kBytes = kThreads * sizeof(std::int64_t);
  gantry::launch(m.stream, 4, gantry::BlockSize(kThreads).with_shared(kBytes),
                 [data = m.data](Block& block) {
                   auto* values = block.shared<std::int64_t>(kThreads);
                   const std::int64_t me = block.flat_thread();
                   values[me] = me;
                   if (kHasBarrier) block.barrier();
                   data[block.flat_index()] = values[(me + 1) % kThreads];
                 });
}

// A second barrier keeps the next round's write behind this round's read.
template <bool kHasSecondBarrier>
void rounds(const Memory& m) {
  gantry::launch(m.stream, 1, kThreads, [data = m.data](Block& block) {
    const std::int64_t me = block.flat_thread();
    for (int round = 0; round < 3; ++round) {
      data[me] += round;
      block.barrier();
      data[512 + me] = data[(me + 1) % kThreads];
      if (kHasSecondBarrier) block.barrier();
    }
  });
}

void one_sum(const Memory& m) {
  gantry::launch(m.stream, 2, kThreads, [data = m.data](Block& block) { *data += block.size().x; });
}
void atomic_sum(const Memory& m) {
  gantry::launch(m.stream, 2, kThreads, [data = m.data](Block& block) {
    gantry::atomic_add(data, std::int64_t{block.size().x});
  });
}

// Two streams write the same tensor, with and without a wait.
template <bool kWaits>
void two_streams(const Memory& m) {
  const Stream other = Stream::from_pool("cuda:0");
  other.wait(m.stream);
  const auto write = [data = m.data](std::int64_t i) { data[i] = i; };
  gantry::parallel_for(m.stream, 1024, write);
  if (kWaits) other.wait(m.stream);
  gantry::parallel_for(other, 1024, write);
  other.synchronize();
}

// The same with functions that are compiled at run time.
template <bool kWaits>
void two_jit_streams(const Memory& m) {
  const auto next = gantry::jit::elementwise("template <typename T> T next(T x) { return x + 1; }");
  const Stream other = Stream::from_pool("cuda:0");
  other.wait(m.stream);
  next.into({{m.tensor}}, m.tensor);
  if (kWaits) other.wait(m.stream);
  {
    const gantry::StreamGuard guard(other);
    next.into({{m.tensor}}, m.tensor);
  }
  other.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Memory&)>> cases{
      {"ordered_by_barrier", neighbours<true>}, {"unordered_neighbours", neighbours<false>},
      {"ordered_rounds", rounds<true>},         {"unordered_rounds", rounds<false>},
      {"ordered_atomics", atomic_sum},          {"unordered_sum", one_sum},
      {"ordered_streams", two_streams<true>},   {"unordered_streams", two_streams<false>},
      {"ordered_jit", two_jit_streams<true>},   {"unordered_jit", two_jit_streams<false>},
  };
  const auto found = cases.find(argc == 2 ? argv[1] : "");
  if (found == cases.end()) {
    std::fputs("usage: launch_race_program <case>\n", stderr);
    return 2;
  }
  const Memory memory;
  found->second(memory);
  memory.stream.synchronize();
  return 0;
}
