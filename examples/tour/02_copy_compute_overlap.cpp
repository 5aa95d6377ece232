// Overlap of copies and compute: while one chunk is computed, the next one is copied.
//
// Two streams take turns. Each has a page-locked buffer on the host and one on the device, because
// only copies from page-locked memory run beside the host and beside kernels.
#include <gantry/gantry.hpp>

#include <array>
#include <iostream>
#include <numeric>
#include <vector>

int main() {
  using namespace gantry;
  constexpr std::int64_t kChunk = 1 << 14;
  constexpr std::int64_t kChunks = 8;
  std::vector<float> samples(kChunk * kChunks);
  std::iota(samples.begin(), samples.end(), 0.0F);

  // 1. What each of the two streams owns.
  struct Slot {
    Stream stream = Stream::from_pool("cuda:0");
    Tensor staging = empty({kChunk}, {.dtype = f32, .pinned = true});
    Tensor chunk;
    Event copied;
  };
  std::array<Slot, 2> slots;
  Tensor sums = zeros({kChunks}, {.dtype = f32, .device = "cuda:0"});

  for (std::int64_t i = 0; i < kChunks; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i % 2)];

    // 2. The host may overwrite the staging buffer once its last copy is done. That is the only
    //    wait of the host in this loop.
    if (slot.copied.is_created()) slot.copied.synchronize();
    std::copy_n(samples.data() + i * kChunk, kChunk, slot.staging.data_ptr<float>());

    // 3. Copy and kernels of one chunk are in order on the slot's stream. Work of the other slot
    //    run beside them.
    if (i < 2) slot.stream.wait(Stream::current("cuda:0"));  // for the zeros
    const StreamGuard guard(slot.stream);
    slot.chunk = slot.staging.to("cuda:0", {.non_blocking = true});
    slot.copied.record(slot.stream);
    sums[i] = (slot.chunk * 2).sum();
  }

  // 4. The results of both slots are joined on the device.
  for (const Slot& slot : slots) {
    Stream::current("cuda:0").wait(slot.stream);
    sums.record_stream(slot.stream);
  }
  std::cout << "total: " << sums.sum().item<double>() << "\n";
  const double n = static_cast<double>(kChunk * kChunks);
  std::cout << "expected: " << n * (n - 1) << "\n";
}
// Output:
// total: 1.71797e+10
// expected: 1.71797e+10
