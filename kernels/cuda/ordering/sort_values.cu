// Note [Sorted values]
// Only zeros and NaNs have several elements to a key. A caller that needs neither indices nor the
// payloads of NaNs has its keys sorted alone: half of the memory traffic. All zeros become the
// first one, which is +0 unless there is a -0 and it comes before all +0.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Neighbouring elements of a thread.
constexpr int kPack = 4;

// The first zero of the elements, for a launch that has a -0.
struct FirstZero {
  std::uint32_t has_negative;  // 1 if there is a -0
  std::uint32_t position;      // its complement, so that 0 is the last one
};

template <class U>
__device__ bool is_negative_zero(const KeyOrder<U>& order, U bits) {
  return order.kind == KeyKind::floating && bits == KeyOrder<U>::kSign;
}

// Writes the key of every element. `stride` is 1 if `packs` is not 0.
template <class U>
__global__ void __launch_bounds__(kThreads)
    value_keys_kernel(const U* in, std::int64_t stride, KeyOrder<U> order, std::int64_t n,
                      std::int64_t packs, U* keys, FirstZero* zero) {
  bool has_negative = false;
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    auto pack = reinterpret_cast<const StoredPack<U, kPack>*>(in)[i];
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      has_negative = has_negative || is_negative_zero(order, pack.values[v]);
      pack.values[v] = order.key(pack.values[v]);
    }
    reinterpret_cast<StoredPack<U, kPack>*>(keys)[i] = pack;
  }
  for (std::int64_t i = packs * kPack + first_index(); i < n; i += index_step()) {
    const U bits = in[i * stride];
    has_negative = has_negative || is_negative_zero(order, bits);
    keys[i] = order.key(bits);
  }
  if (has_negative) zero->has_negative = 1;
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    first_zero_kernel(const U* in, std::int64_t stride, std::int64_t n, FirstZero* zero) {
  if (zero->has_negative == 0) return;
  constexpr U kMagnitude = static_cast<U>(~KeyOrder<U>::kSign);
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    const auto found = ~static_cast<std::uint32_t>(i);
    if (found < __ldcg(&zero->position)) return;
    if ((in[i * stride] & kMagnitude) != 0) continue;
    atomicMax(&zero->position, found);
    return;
  }
}

// Writes the elements of keys, in their order. `values` may be `keys`.
template <class U>
__global__ void __launch_bounds__(kThreads)
    sorted_values_kernel(const U* in, std::int64_t stride, KeyOrder<U> order, std::int64_t n,
                         const U* keys, U* values, const FirstZero* zero) {
  const U first = zero->has_negative != 0 ? in[~zero->position * stride] : U(0);
  const auto element = [&](U key) {
    const U result = order.element(key);
    return order.kind == KeyKind::floating && result == 0 ? first : result;
  };
  const std::int64_t packs = n / kPack;
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    auto pack = reinterpret_cast<const StoredPack<U, kPack>*>(keys)[i];
#pragma unroll
    for (int v = 0; v < kPack; ++v) pack.values[v] = element(pack.values[v]);
    reinterpret_cast<StoredPack<U, kPack>*>(values)[i] = pack;
  }
  const std::int64_t i = packs * kPack + first_index();
  if (i < n) values[i] = element(keys[i]);
}

void check(void* stream, cudaError_t status) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_error("sort_values", stream, status);
}

// Layout of the scratch memory: an array of keys, the first zero, and CUB's storage. The values
// are the other array of keys.
template <class U>
struct ValueScratch {
  std::size_t keys_bytes;
  std::size_t cub_bytes = 0;

  explicit ValueScratch(std::int64_t n)
      : keys_bytes((static_cast<std::size_t>(n) * sizeof(U) + 255) / 256 * 256) {
    cub::DoubleBuffer<U> keys(nullptr, nullptr);
    sort(nullptr, nullptr, cub_bytes, keys, n, static_cast<int>(sizeof(U)) * 8);
  }

  [[nodiscard]] std::size_t total() const { return keys_bytes + kZeroBytes + cub_bytes; }

  static void sort(void* stream, void* cub, std::size_t& bytes, cub::DoubleBuffer<U>& keys,
                   std::int64_t n, int bits) {
    check(stream, cub::DeviceRadixSort::SortKeys(cub, bytes, keys, static_cast<std::uint32_t>(n), 0,
                                                 bits, static_cast<cudaStream_t>(stream)));
  }

  static constexpr std::size_t kZeroBytes = 256;
};

template <class U>
void sort_values_of(void* stream, const SortPlan& plan, char* memory) {
  const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
  const std::int64_t n = plan.fibres.length;
  const std::int64_t stride = plan.fibres.in.stride;
  const U* const in = sort_input<U>(plan, 0);
  U* const values = sort_output<U>(plan, 0).values;
  ValueScratch<U> layout(n);
  auto* const zero = reinterpret_cast<FirstZero*>(memory + layout.keys_bytes);
  check(stream, cudaMemsetAsync(zero, 0, sizeof(FirstZero), static_cast<cudaStream_t>(stream)));
  cub::DoubleBuffer<U> keys(reinterpret_cast<U*>(memory), values);
  const bool is_wide =
      stride == 1 && reinterpret_cast<std::uintptr_t>(in) % alignof(StoredPack<U, kPack>) == 0;
  const unsigned blocks = blocks_for((n + kPack - 1) / kPack);
  launch("value_keys", stream, blocks, kThreads, 0, value_keys_kernel<U>, in, stride, order, n,
         is_wide ? n / kPack : 0, keys.Current(), zero);
  if (order.kind == KeyKind::floating) {
    launch("first_zero", stream, blocks < 1024 ? blocks : 1024, kThreads, 0, first_zero_kernel<U>,
           in, stride, n, zero);
  }
  layout.sort(stream, memory + layout.keys_bytes + layout.kZeroBytes, layout.cub_bytes, keys, n,
              order.bits());
  launch("sorted_values", stream, blocks, kThreads, 0, sorted_values_kernel<U>, in, stride, order,
         n, keys.Current(), values, zero);
}

}  // namespace

std::size_t sort_values_bytes(const SortPlan& plan) {
  std::size_t bytes = 0;
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    bytes = ValueScratch<typename decltype(tag)::type>(plan.fibres.length).total();
  });
  return bytes;
}

void sort_values(void* stream, const SortPlan& plan, void* scratch) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    sort_values_of<typename decltype(tag)::type>(stream, plan, static_cast<char*>(scratch));
  });
}

}  // namespace gantry::kernels::cuda
