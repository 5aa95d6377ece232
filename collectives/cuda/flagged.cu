// The kernels by LL and LL128.
#include <cstdint>

#include "collectives/algorithms/flagged.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

namespace {

// Ranks whose units a thread waits for at once. In larger groups, more ranks would need more code,
// which takes longer to fetch than another round of waiting.
constexpr int kTwoRanks = 2;
constexpr int kMoreRanks = 4;
// LL packets that are only moved need little code. If a thread waits for all ranks at once, it need
// not wait for entries. LL128 lines of as many ranks would not fit into registers.
constexpr int kManyRanks = 8;

template <class T, template <class> class Proto, int Batch, int Shots>
__global__ void __launch_bounds__(kThreads, 1)
    flagged_kernel(const __grid_constant__ FlaggedPlan plan) {
  CudaBlock<0> block;
  flagged<T, Proto, Batch, Shots>(block, plan);
}

template <class T, template <class> class Proto, int Shots>
auto flagged_kernel_for(int ranks) {
  constexpr bool kIsOneWord = Proto<CudaBlock<0>>::kHeld == 1;
  constexpr int kMost = kIsOneWord && !kReduces<T> ? kManyRanks : kMoreRanks;
  if constexpr (Shots == 2) {  // of three ranks or more
    return flagged_kernel<T, Proto, kMoreRanks, Shots>;
  } else {
    if (ranks <= kTwoRanks) return flagged_kernel<T, Proto, kTwoRanks, Shots>;
    if (ranks <= kMoreRanks) return flagged_kernel<T, Proto, kMoreRanks, Shots>;
    return flagged_kernel<T, Proto, kMost, Shots>;
  }
}

// Threads of each block, for slices of `bytes` in `blocks` blocks. Small blocks start sooner.
template <template <class> class Proto>
constexpr int flagged_threads(std::int64_t bytes, int blocks) {
  using Shape = Proto<CudaBlock<0>>;
  constexpr int kUnitThreads = (Shape::kUnitWords + Shape::kHeld - 1) / Shape::kHeld;
  constexpr int kGrain = 128;
  const std::int64_t units = bytes / (8 * Shape::kUnitWords);
  const std::int64_t wanted = (units + blocks - 1) / blocks * kUnitThreads;
  return wanted >= kThreads
             ? kThreads
             : static_cast<int>((wanted + kGrain - 1) / kGrain + (wanted == 0)) * kGrain;
}

template <template <class> class Proto, int Shots>
void enqueue_flagged(const char* name, void* stream, const FlaggedPlan& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch(name, stream, blocks, flagged_threads<Proto>(plan.bytes, blocks), 0,
                          flagged_kernel_for<T, Proto, Shots>(plan.group.size), plan);
  });
}

template <template <class> class Proto, int Shots>
void preload_flagged() {
  cuda::for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    for (const int ranks : {kTwoRanks, kMoreRanks, kManyRanks}) {
      cuda::preload_kernel(flagged_kernel_for<T, Proto, Shots>(ranks));
    }
  });
}

}  // namespace

void kernel::ll::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  enqueue_flagged<Ll, 1>("ll", stream, plan, blocks);
}
void kernel::ll128::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  enqueue_flagged<Ll128, 1>("ll128", stream, plan, blocks);
}
void kernel::ll128_two_shot::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  enqueue_flagged<Ll128, 2>("ll128_two_shot", stream, plan, blocks);
}

void kernel::ll::preload() { preload_flagged<Ll, 1>(); }
void kernel::ll128::preload() { preload_flagged<Ll128, 1>(); }
void kernel::ll128_two_shot::preload() { preload_flagged<Ll128, 2>(); }

}  // namespace gantry::protocol
