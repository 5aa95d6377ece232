// Three kernels of one's own: an exclusive scan, a compaction on top of it, and a histogram.
//
// Run: scan_compact_histogram    (without a GPU: export GANTRY_SIM_DEVICES=4)
//
// One source for GPUs and simulated devices. Operations of the library check the results.
#include <gantry/gantry.hpp>

#include <iostream>

namespace {

using namespace gantry;

constexpr std::int64_t kThreads = 256, kBins = 64;

// 1. The sums of the elements before each element, within a block, and the sum of the block.
struct ScanBlocks {
  const std::int32_t* in;
  std::int32_t *out, *sums;
  std::int64_t n;

  GANTRY_HD void operator()(Block& block) const {
    const std::uint32_t me = block.thread().x;
    const std::int64_t i = block.flat_index();
    std::int32_t* total = block.shared<std::int32_t>(kThreads);
    const std::int32_t own = i < n ? in[i] : 0;
    total[me] = own;
    for (std::uint32_t distance = 1; distance < kThreads; distance *= 2) {
      block.barrier();
      const std::int32_t before = me >= distance ? total[me - distance] : 0;
      block.barrier();
      total[me] += before;
    }
    if (i < n) out[i] = total[me] - own;
    if (me == kThreads - 1) sums[block.index().x] = total[me];
  }
};

// 2. Block sums are scanned in the same way, until one block is left.
Tensor exclusive_scan(const Stream& stream, const Tensor& in) {
  const std::int64_t n = in.numel(), blocks = (n + kThreads - 1) / kThreads;
  const Tensor out = empty_like(in), sums = empty({blocks}, in.options());
  launch(stream, blocks, BlockSize(kThreads).with_shared(kThreads * sizeof(std::int32_t)),
         uses(in).writes(out, sums),
         ScanBlocks{in.data_ptr<std::int32_t>(), out.data_ptr<std::int32_t>(),
                    sums.data_ptr<std::int32_t>(), n});
  if (blocks == 1) return out;
  return out.add_(exclusive_scan(stream, sums).repeat_interleave(kThreads).narrow(0, 0, n));
}

// 3. The scan of the flags is the place of each element that is kept.
struct Keep {
  const float* in;
  const std::int32_t *flags, *places;
  float* out;
  GANTRY_HD void operator()(std::int64_t i) const {
    if (flags[i] != 0) out[places[i]] = in[i];
  }
};

Tensor keep_if(const Stream& stream, const Tensor& in, const Tensor& mask) {
  const Tensor flags = mask.to(i32), places = exclusive_scan(stream, flags);
  const std::int64_t kept = (places[-1] + flags[-1]).item<std::int32_t>();  // the host waits
  const Tensor out = empty({kept}, in.options());
  parallel_for(stream, in.numel(), uses(in, flags, places).writes(out),
               Keep{in.data_ptr<float>(), flags.data_ptr<std::int32_t>(),
                    places.data_ptr<std::int32_t>(), out.data_ptr<float>()});
  return out;
}

// 4. A histogram in shared memory for each block, which is then added to the one of the device.
struct Histogram {
  const float* in;  // numbers in [0, 1)
  std::int32_t* counts;
  std::int64_t n;

  GANTRY_HD void operator()(Block& block) const {
    std::int32_t* own = block.shared<std::int32_t>(kBins);
    const std::uint32_t me = block.thread().x;
    if (me < kBins) own[me] = 0;
    block.barrier();
    for (std::int64_t i = block.flat_index(); i < n; i += block.grid().x * kThreads) {
      atomic_add(&own[static_cast<std::int32_t>(in[i] * kBins)], 1);
    }
    block.barrier();
    if (me < kBins) atomic_add(&counts[me], own[me]);
  }
};

Tensor histogram(const Stream& stream, const Tensor& in) {
  const Tensor counts = zeros({kBins}, {.dtype = i32, .device = in.device()});
  launch(stream, 16, BlockSize(kThreads).with_shared(kBins * sizeof(std::int32_t)),
         uses(in).writes(counts),
         Histogram{in.data_ptr<float>(), counts.data_ptr<std::int32_t>(), in.numel()});
  return counts;
}

}  // namespace

int main() {
  manual_seed(11);
  const Stream stream = Stream::current("cuda:0");
  bool is_right = true;
  for (const std::int64_t n : {1, 256, 257, 100'003}) {
    const Tensor numbers = rand({n}, "cuda:0"), mask = numbers > 0.3;
    const Tensor integers = randint(-9, 9, {n}, {.dtype = i32, .device = "cuda:0"});
    const bool is_scan =
        equal(exclusive_scan(stream, integers) + integers, integers.cumsum(0, i32));
    const bool is_kept = equal(keep_if(stream, numbers, mask), numbers.masked_select(mask));
    const bool is_counted = equal(histogram(stream, numbers).to(f32), histc(numbers, kBins, 0, 1));
    std::cout << n << " elements: " << is_scan << is_kept << is_counted << "\n";
    is_right = is_right && is_scan && is_kept && is_counted;
  }
  return is_right ? 0 : 1;
}
// Output:
// 1 elements: 111
// 256 elements: 111
// 257 elements: 111
// 100003 elements: 111
