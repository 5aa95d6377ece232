// Note [Sorted values]
// A caller that needs no indices has its elements sorted alone: half of the memory traffic. CUB
// reads them where they are, and takes both zeros for one key. It orders NaNs by their bits, so
// NaNs with a sign come first. If there are any, two more launches move them behind the numbers.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/native_type.cuh"
#include "kernels/input.hpp"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Blocks of the launches that mostly find nothing to move.
constexpr unsigned kMovingBlocks = 1024;

unsigned moving_blocks(std::int64_t n) {
  const unsigned blocks = blocks_for(n);
  return blocks < kMovingBlocks ? blocks : kMovingBlocks;
}

// Writes the sorted elements to `moved` with the NaNs before the numbers behind them, and the
// number of these NaNs. Their bits are above `negative_infinity`. Does nothing else without them.
template <class U>
__global__ void __launch_bounds__(kThreads)
    move_first_nans_kernel(const U* sorted, std::int64_t n, U negative_infinity, U* moved,
                           std::int64_t* count) {
  __shared__ std::int64_t nans;
  if (!(sorted[0] > negative_infinity)) {
    if (first_index() == 0) *count = 0;
    return;
  }
  if (threadIdx.x == 0) {
    std::int64_t low = 1;
    std::int64_t high = n;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (sorted[middle] > negative_infinity) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    nans = low;
  }
  __syncthreads();
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    moved[i < nans ? n - nans + i : i - nans] = sorted[i];
  }
  if (first_index() == 0) *count = nans;
}

// Copies the moved elements back, if there are any.
template <class U>
__global__ void __launch_bounds__(kThreads)
    return_moved_kernel(U* sorted, std::int64_t n, const U* moved, const std::int64_t* count) {
  if (*count == 0) return;
  for (std::int64_t i = first_index(); i < n; i += index_step()) sorted[i] = moved[i];
}

template <class T>
void sort_keys(void* stream, void* storage, std::size_t& bytes, const void* in, void* out,
               std::int64_t n) {
  // The types of 16 bits differ in where NaNs begin, which is nothing to CUB.
  using Key = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, __half, T>;
  const cudaError_t status = cub::DeviceRadixSort::SortKeys(
      storage, bytes, static_cast<const Key*>(in), static_cast<Key*>(out),
      static_cast<std::uint32_t>(n), 0, static_cast<int>(sizeof(Key)) * 8,
      static_cast<cudaStream_t>(stream));
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_error("sort_values", stream, status);
}

// The scratch memory: a count of NaNs, and CUB's storage or the moved elements.
constexpr std::size_t kCountBytes = 256;

void move_nans(void* stream, const SortPlan& plan, void* sorted, char* scratch) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    if constexpr (sizeof(U) > 1) {
      const std::int64_t n = plan.fibres.length;
      const auto negative_infinity =
          static_cast<U>(make_key_order<U>(plan.fibres.dtype, false).infinity | KeyOrder<U>::kSign);
      auto* const count = reinterpret_cast<std::int64_t*>(scratch);
      auto* const moved = reinterpret_cast<U*>(scratch + kCountBytes);
      launch("move_first_nans", stream, moving_blocks(n), kThreads, 0, move_first_nans_kernel<U>,
             static_cast<U*>(sorted), n, negative_infinity, moved, count);
      launch("return_moved", stream, moving_blocks(n), kThreads, 0, return_moved_kernel<U>,
             static_cast<U*>(sorted), n, moved, count);
    }
  });
}

}  // namespace

bool has_sorted_values(const SortPlan& plan) {
  return !fits_block_sort(plan.fibres) && plan.fibres.in.stride == 1 &&
         plan.fibres.dtype != DType::bool_;
}

std::size_t sort_values_bytes(const SortPlan& plan) {
  std::size_t bytes = 0;
  dispatch_native(plan.fibres.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    sort_keys<T>(nullptr, nullptr, bytes, nullptr, nullptr, plan.fibres.length);
    const std::size_t moved = static_cast<std::size_t>(plan.fibres.length) * sizeof(T);
    bytes = kCountBytes + (bytes > moved ? bytes : moved);
  });
  return bytes;
}

void sort_values(void* stream, const SortPlan& plan, void* scratch) {
  const DType dtype = plan.fibres.dtype;
  auto* const memory = static_cast<char*>(scratch);
  const auto* const in = sort_input<char>(plan, 0);
  char* const sorted = sort_output<char>(plan, 0).values;
  std::size_t bytes = sort_values_bytes(plan) - kCountBytes;
  dispatch_native(dtype, [&](auto tag) {
    sort_keys<typename decltype(tag)::type>(stream, memory + kCountBytes, bytes, in, sorted,
                                            plan.fibres.length);
  });
  if (is_floating_point(dtype)) move_nans(stream, plan, sorted, memory);
}

}  // namespace gantry::kernels::cuda
