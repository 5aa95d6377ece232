#include "kernels/cuda/launch.cuh"
#include "kernels/impl/binning.inl"

namespace gantry::kernels::cuda {

namespace {

// Bins that a block counts in shared memory.
constexpr int kSharedBins = 4096;
// Elements that a thread counts, so that the blocks' counts are few; fewer where blocks would leave
// the GPU idle.
constexpr std::int64_t kMostPerThread = 64;
constexpr std::int64_t kFewestPerThread = 4;
constexpr std::int64_t kManyThreads = std::int64_t{1024} * kThreads;

std::int64_t counted_per_thread(std::int64_t n) {
  const std::int64_t shared_out = n / kManyThreads;
  return shared_out < kFewestPerThread ? kFewestPerThread
         : shared_out < kMostPerThread ? shared_out
                                       : kMostPerThread;
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    search_kernel(const __grid_constant__ SearchPlan plan, KeyOrder<U> order) {
  for (std::int64_t i = first_index(); i < plan.count; i += index_step()) {
    const std::int64_t at = search<U>(plan, order, i);
    if (plan.is_wide) {
      static_cast<std::int64_t*>(plan.out)[i] = at;
    } else {
      static_cast<std::int32_t*>(plan.out)[i] = static_cast<std::int32_t>(at);
    }
  }
}

// Counts are integers: the order of the additions changes nothing.
template <class Bin>
__global__ void __launch_bounds__(kThreads)
    count_kernel(std::int64_t n, std::uint64_t bins, const __grid_constant__ Bin bin_of,
                 unsigned long long* counts) {
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    const std::uint64_t bin = bin_of(i);
    if (bin < bins) atomicAdd(counts + bin, 1ull);
  }
}

template <class Bin>
__global__ void __launch_bounds__(kThreads)
    count_shared_kernel(std::int64_t n, int bins, const __grid_constant__ Bin bin_of,
                        unsigned long long* counts) {
  __shared__ std::uint32_t own[kSharedBins];
  for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += kThreads) own[bin] = 0;
  __syncthreads();
  // A block counts fewer than 2^32 elements: there are many blocks if there are many elements.
#pragma unroll 4
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    const std::uint64_t bin = bin_of(i);
    if (bin < static_cast<std::uint64_t>(bins)) atomicAdd(own + bin, 1u);
  }
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += kThreads) {
    if (own[bin] > 0) atomicAdd(counts + bin, static_cast<unsigned long long>(own[bin]));
  }
}

template <class Bin>
void launch_count(void* stream, const char* name, const CountPlan& plan, const Bin& bin_of) {
  auto* counts = reinterpret_cast<unsigned long long*>(plan.counts);
  if (plan.bins <= kSharedBins) {
    const std::int64_t per_thread = counted_per_thread(plan.n);
    launch(name, stream, blocks_for((plan.n + per_thread - 1) / per_thread), kThreads, 0,
           count_shared_kernel<Bin>, plan.n, static_cast<int>(plan.bins), bin_of, counts);
  } else {
    launch(name, stream, blocks_for(plan.n), kThreads, 0, count_kernel<Bin>, plan.n,
           static_cast<std::uint64_t>(plan.bins), bin_of, counts);
  }
}

__global__ void __launch_bounds__(kThreads)
    run_starts_kernel(const __grid_constant__ RunPlan plan) {
  for (std::int64_t i = first_index(); i < plan.n; i += index_step()) write_run(plan, i);
}

}  // namespace

void searchsorted(void* stream, const SearchPlan& plan) {
  dispatch_keys(plan.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    launch("searchsorted", stream, blocks_for(plan.count), kThreads, 0, search_kernel<U>, plan,
           make_key_order<U>(plan.dtype, false));
  });
}

void count_values(void* stream, const CountPlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_floating_point(dtype_of<T>)) {
      launch_count(stream, "count_values", plan, ValueBin<T>(plan));
    }
  });
}

void count_bins(void* stream, const CountPlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_range_bin<T>(
        plan, [&](const auto& bin_of) { launch_count(stream, "count_bins", plan, bin_of); });
  });
}

void run_starts(void* stream, const RunPlan& plan) {
  launch("run_starts", stream, blocks_for(plan.n), kThreads, 0, run_starts_kernel, plan);
}

}  // namespace gantry::kernels::cuda
