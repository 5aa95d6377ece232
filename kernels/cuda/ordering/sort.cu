// Note [Sorting long fibres]
// The fibres of a group form one array of pairs (key, position). A first stable radix sort orders
// the keys of all fibres together. A second one, by fibre, separates the fibres again; it needs one
// pass for up to 256 fibres. The time depends on the number of elements only, not on the number of
// fibres. A value is computed from its key. It is read from the input instead if it is a zero or a
// NaN, or if the keys are still in the order of the first sort.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// The most elements of a group of fibres. A longer fibre is a group of its own.
constexpr std::int64_t kGroupElements = std::int64_t{1} << 28;

std::int64_t fibres_per_group(const SortPlan& plan) {
  const std::int64_t most = kGroupElements / plan.fibres.length;
  return most < 1 ? 1 : most < plan.fibres.count ? most : plan.fibres.count;
}

void check(void* stream, cudaError_t status) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_error("sort", stream, status);
}

// Writes the key and the position in the group of every element. A group has fewer than 2^32
// elements, and divisions of 32 bits are several times faster.
template <class U>
__global__ void __launch_bounds__(kThreads)
    sort_keys_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                     std::int64_t first_fibre, std::int64_t n, U* keys, std::uint32_t* positions) {
  const auto length = static_cast<std::uint32_t>(plan.fibres.length);
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t fibre = at / length;
    const U* in = sort_input<U>(plan, first_fibre + fibre);
    keys[i] = order.key(in[static_cast<std::int64_t>(at - fibre * length) * plan.fibres.in.stride]);
    positions[i] = at;
  }
}

// Neighbouring elements of a thread in the kernels for one dense fibre.
constexpr int kPack = 4;

// sort_keys_kernel of one dense fibre, whose elements begin on a pack.
template <class U>
__global__ void __launch_bounds__(kThreads)
    sort_dense_keys_kernel(const U* in, KeyOrder<U> order, std::int64_t n, U* keys,
                           std::uint32_t* positions) {
  const std::int64_t packs = n / kPack;
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    auto pack = reinterpret_cast<const StoredPack<U, kPack>*>(in)[i];
    StoredPack<std::uint32_t, kPack> at;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      pack.values[v] = order.key(pack.values[v]);
      at.values[v] = static_cast<std::uint32_t>(i * kPack + v);
    }
    reinterpret_cast<StoredPack<U, kPack>*>(keys)[i] = pack;
    reinterpret_cast<StoredPack<std::uint32_t, kPack>*>(positions)[i] = at;
  }
  const std::int64_t i = packs * kPack + first_index();
  if (i < n) {
    keys[i] = order.key(in[i]);
    positions[i] = static_cast<std::uint32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    sort_fibres_kernel(std::int64_t n, std::uint32_t length, const std::uint32_t* positions,
                       std::uint32_t* fibres) {
  for (std::int64_t i = first_index(); i < n; i += index_step()) fibres[i] = positions[i] / length;
}

// Writes the first plan.count elements of each fibre. Null `keys`: every value is read.
template <class U>
__global__ void __launch_bounds__(kThreads)
    sort_write_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                      std::int64_t first_fibre, std::int64_t fibres, const U* keys,
                      const std::uint32_t* positions) {
  const std::int64_t length = plan.fibres.length;
  const std::int64_t n = fibres * plan.count;
  const auto count = static_cast<std::uint32_t>(plan.count);
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    const std::int64_t fibre = static_cast<std::uint32_t>(i) / count;
    const std::int64_t at = i - fibre * plan.count;
    const std::int64_t from = fibre * length + plan.first + at;
    const std::int64_t position = static_cast<std::int64_t>(positions[from]) - fibre * length;
    U value = 0;
    if (plan.fibres.out.data != nullptr) {
      const U key = keys != nullptr ? keys[from] : U(0);
      value = keys != nullptr && order.is_exact(key)
                  ? order.element(key)
                  : order.stored(
                        sort_input<U>(plan, first_fibre + fibre)[position * plan.fibres.in.stride]);
    }
    sort_output<U>(plan, first_fibre + fibre).write(at, value, position);
  }
}

// sort_write_kernel of one fibre whose results are dense and, as its keys, begin on a pack. Null
// results are not written.
template <class U>
__global__ void __launch_bounds__(kThreads)
    sort_dense_write_kernel(const U* in, std::int64_t stride, KeyOrder<U> order, std::int64_t n,
                            const U* keys, const std::uint32_t* positions, U* values,
                            std::int64_t* indices) {
  const auto value_of = [&](U key, std::uint32_t position) {
    return order.is_exact(key) ? order.element(key) : order.stored(in[position * stride]);
  };
  const std::int64_t packs = n / kPack;
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    auto pack = reinterpret_cast<const StoredPack<U, kPack>*>(keys)[i];
    const auto at = reinterpret_cast<const StoredPack<std::uint32_t, kPack>*>(positions)[i];
    if (values != nullptr) {
#pragma unroll
      for (int v = 0; v < kPack; ++v) pack.values[v] = value_of(pack.values[v], at.values[v]);
      reinterpret_cast<StoredPack<U, kPack>*>(values)[i] = pack;
    }
    if (indices != nullptr) {
      StoredPack<std::int64_t, kPack> wide;
#pragma unroll
      for (int v = 0; v < kPack; ++v) wide.values[v] = at.values[v];
      reinterpret_cast<StoredPack<std::int64_t, kPack>*>(indices)[i] = wide;
    }
  }
  const std::int64_t i = packs * kPack + first_index();
  if (i < n) {
    if (values != nullptr) values[i] = value_of(keys[i], positions[i]);
    if (indices != nullptr) indices[i] = positions[i];
  }
}

template <class T>
bool begins_on_pack(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(StoredPack<T, kPack>) == 0;
}

// Layout of the scratch memory: two arrays of keys, two of positions, two of fibres if a group has
// several, and CUB's storage.
template <class U>
struct SortScratch {
  std::size_t keys_bytes;
  std::size_t positions_bytes;
  std::size_t fibres_bytes;
  std::size_t cub_bytes = 0;

  SortScratch(const SortPlan& plan, std::int64_t fibres) {
    const auto count = static_cast<std::size_t>(fibres * plan.fibres.length);
    keys_bytes = aligned(count * sizeof(U));
    positions_bytes = aligned(count * sizeof(std::uint32_t));
    fibres_bytes = fibres > 1 ? positions_bytes : 0;
    std::size_t bytes = 0;
    cub::DoubleBuffer<U> keys(nullptr, nullptr);
    cub::DoubleBuffer<std::uint32_t> values(nullptr, nullptr);
    sort_pairs(nullptr, nullptr, bytes, keys, values, count, static_cast<int>(sizeof(U)) * 8);
    cub_bytes = bytes;
    if (fibres > 1) {
      cub::DoubleBuffer<std::uint32_t> fibre_keys(nullptr, nullptr);
      sort_pairs(nullptr, nullptr, bytes, fibre_keys, values, count, 32);
      if (bytes > cub_bytes) cub_bytes = bytes;
    }
  }

  std::size_t total() const {
    return 2 * (keys_bytes + positions_bytes + fibres_bytes) + cub_bytes;
  }

  template <class K>
  static void sort_pairs(void* stream, void* cub, std::size_t& bytes, cub::DoubleBuffer<K>& keys,
                         cub::DoubleBuffer<std::uint32_t>& values, std::size_t count, int bits) {
    check(stream, cub::DeviceRadixSort::SortPairs(cub, bytes, keys, values,
                                                  static_cast<std::uint32_t>(count), 0, bits,
                                                  static_cast<cudaStream_t>(stream)));
  }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

template <class U>
void sort_group(void* stream, const SortPlan& plan, const KeyOrder<U>& order,
                std::int64_t first_fibre, std::int64_t fibres, SortScratch<U> layout,
                char* memory) {
  const std::int64_t n = fibres * plan.fibres.length;
  const auto count = static_cast<std::size_t>(n);
  cub::DoubleBuffer<U> keys(reinterpret_cast<U*>(memory),
                            reinterpret_cast<U*>(memory + layout.keys_bytes));
  memory += 2 * layout.keys_bytes;
  cub::DoubleBuffer<std::uint32_t> positions(
      reinterpret_cast<std::uint32_t*>(memory),
      reinterpret_cast<std::uint32_t*>(memory + layout.positions_bytes));
  memory += 2 * layout.positions_bytes;
  cub::DoubleBuffer<std::uint32_t> rows(
      reinterpret_cast<std::uint32_t*>(memory),
      reinterpret_cast<std::uint32_t*>(memory + layout.fibres_bytes));
  memory += 2 * layout.fibres_bytes;

  const U* const in = sort_input<U>(plan, first_fibre);
  if (fibres == 1 && plan.fibres.in.stride == 1 && begins_on_pack(in)) {
    launch("sort_keys", stream, blocks_for((n + kPack - 1) / kPack), kThreads, 0,
           sort_dense_keys_kernel<U>, in, order, n, keys.Current(), positions.Current());
  } else {
    launch("sort_keys", stream, blocks_for(n), kThreads, 0, sort_keys_kernel<U>, plan, order,
           first_fibre, n, keys.Current(), positions.Current());
  }
  layout.sort_pairs(stream, memory, layout.cub_bytes, keys, positions, count, order.bits());
  const U* sorted_keys = keys.Current();
  if (fibres > 1) {
    launch("sort_fibres", stream, blocks_for(n), kThreads, 0, sort_fibres_kernel, n,
           static_cast<std::uint32_t>(plan.fibres.length), positions.Current(), rows.Current());
    int bits = 1;
    while ((fibres - 1) >> bits != 0) ++bits;
    layout.sort_pairs(stream, memory, layout.cub_bytes, rows, positions, count, bits);
    sorted_keys = nullptr;
  }
  const SortOutput<U> out = sort_output<U>(plan, first_fibre);
  const bool has_dense_values =
      out.values == nullptr || (out.value_stride == 1 && begins_on_pack(out.values));
  const bool has_dense_indices =
      out.indices == nullptr || (out.index_stride == 1 && begins_on_pack(out.indices));
  if (fibres == 1 && plan.first % kPack == 0 && has_dense_values && has_dense_indices) {
    launch("sort_write", stream, blocks_for((plan.count + kPack - 1) / kPack), kThreads, 0,
           sort_dense_write_kernel<U>, in, plan.fibres.in.stride, order, plan.count,
           sorted_keys + plan.first, positions.Current() + plan.first, out.values, out.indices);
    return;
  }
  launch("sort_write", stream, blocks_for(fibres * plan.count), kThreads, 0, sort_write_kernel<U>,
         plan, order, first_fibre, fibres, sorted_keys, positions.Current());
}

}  // namespace

std::size_t sort_scratch_bytes(const SortPlan& plan) {
  std::size_t bytes = 0;
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    bytes = SortScratch<typename decltype(tag)::type>(plan, fibres_per_group(plan)).total();
  });
  return bytes;
}

void sort(void* stream, const SortPlan& plan, void* scratch) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
    const std::int64_t per_group = fibres_per_group(plan);
    const SortScratch<U> layout(plan, per_group);
    for (std::int64_t first = 0; first < plan.fibres.count; first += per_group) {
      const std::int64_t rest = plan.fibres.count - first;
      sort_group<U>(stream, plan, order, first, rest < per_group ? rest : per_group, layout,
                    static_cast<char*>(scratch));
    }
  });
}

}  // namespace gantry::kernels::cuda
