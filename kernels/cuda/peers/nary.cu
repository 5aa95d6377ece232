#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/peers/find_item.cuh"
#include "kernels/impl/nary.inl"

namespace gantry::kernels::cuda {

namespace {

// Inputs in flight per thread. Loads from a peer take about a microsecond.
constexpr int kInFlight = 8;

template <class Stored, int V>
struct alignas(sizeof(Stored) * V) Word {
  Stored elements[V];
};

// Computes the V results at element `at`, to which all addresses are aligned. input(k) is the
// address of input k. F is a template parameter, because a branch on the operation between loads
// and additions would delay the loads.
template <class F, int V, class Input>
__device__ Word<typename F::Stored, V> nary_word(double divisor, int input_count, std::int64_t at,
                                                 const Input& input) {
  using Stored = typename F::Stored;
  using Acc = typename F::Acc;
  using Vector = Word<Stored, V>;
  Acc accumulators[V];
  for (int base = 0; base < input_count; base += kInFlight) {
    const int rest = input_count - base;
    Vector loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (k < rest) {
        loaded[k] =
            *reinterpret_cast<const Vector*>(static_cast<const Stored*>(input(base + k)) + at);
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (k >= rest) break;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const Acc value = F::load(loaded[k].elements[i]);
        accumulators[i] = base + k == 0 ? value : F::combine(accumulators[i], value);
      }
    }
  }
  Vector result;
  F::finish(accumulators, divisor, result.elements);
  return result;
}

template <class F, int V>
__device__ void nary_into_outs(const NaryPlan& plan, std::int64_t at) {
  using Stored = typename F::Stored;
  using Vector = Word<Stored, V>;
  const Vector result =
      nary_word<F, V>(plan.divisor, plan.input_count, at, [&](int k) { return plan.inputs[k]; });
  // Each block starts with another output, so that the stores spread over all links.
  const int outs = plan.out_count;
  int out = static_cast<int>(blockIdx.x % static_cast<unsigned>(outs));
  for (int k = 0; k < outs; ++k) {
    *reinterpret_cast<Vector*>(static_cast<Stored*>(plan.outs[out]) + at) = result;
    if (++out == outs) out = 0;
  }
}

// The first `head` elements and those after the last whole word are computed one by one.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    nary_kernel(const __grid_constant__ NaryPlan plan, std::int64_t head) {
  with_nary_functor<T>(plan.op, [&](auto functor) {
    using F = typename decltype(functor)::type;
    if constexpr (F::kIsDefined) {
      const std::int64_t words = (plan.count - head) / V;
      for (std::int64_t i = first_index(); i < words; i += index_step()) {
        nary_into_outs<F, V>(plan, head + i * V);
      }
      if constexpr (V > 1) {
        const std::int64_t single = first_index();
        const std::int64_t tail = head + words * V;
        if (single < head) nary_into_outs<F, 1>(plan, single);
        if (single < plan.count - tail) nary_into_outs<F, 1>(plan, tail + single);
      }
    }
  });
}

// The items of one launch as a kernel parameter: by value, so that a launch needs no memory and can
// be captured. Kernel parameters have at most 32,764 bytes.
struct NaryBatchTable {
  static constexpr std::size_t kItems = 512;
  static constexpr std::size_t kAddresses = 2560;

  NaryOp op;
  std::int32_t input_count;
  std::int32_t item_count;
  std::uint32_t chunks;
  double divisor;
  std::uint32_t first_chunks[kItems];
  std::int64_t counts[kItems];        // negative: not all addresses are aligned to 16 bytes
  const void* addresses[kAddresses];  // per item: the inputs', then the output's
};
static_assert(sizeof(NaryBatchTable) <= 32764);

// Each block computes chunks of kThreads * V elements.
template <class F, int V>
__device__ void nary_chunks(const NaryBatchTable& table) {
  using Stored = typename F::Stored;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    const int at = find_item(table, chunk);
    const std::int64_t signed_count = table.counts[at];
    const std::int64_t count = signed_count < 0 ? -signed_count : signed_count;
    const int row = at * (table.input_count + 1);
    const auto input = [&](int k) { return table.addresses[row + k]; };
    Stored* const out =
        static_cast<Stored*>(const_cast<void*>(table.addresses[row + table.input_count]));
    const std::int64_t begin =
        static_cast<std::int64_t>(chunk - table.first_chunks[at]) * (kThreads * V);
    const std::int64_t end = begin + kThreads * V < count ? begin + kThreads * V : count;
    std::int64_t done = begin;
    if (signed_count > 0) {
      done = begin + (end - begin) / V * V;
      const std::int64_t at = begin + static_cast<std::int64_t>(threadIdx.x) * V;
      if (at < done) {
        *reinterpret_cast<Word<Stored, V>*>(out + at) =
            nary_word<F, V>(table.divisor, table.input_count, at, input);
      }
    }
    for (std::int64_t at = done + threadIdx.x; at < end; at += kThreads) {
      out[at] = nary_word<F, 1>(table.divisor, table.input_count, at, input).elements[0];
    }
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    nary_batched_kernel(const __grid_constant__ NaryBatchTable table) {
  with_nary_functor<T>(table.op, [&](auto functor) {
    using F = typename decltype(functor)::type;
    if constexpr (F::kIsDefined) nary_chunks<F, V>(table);
  });
}

// The fewest elements before all addresses are aligned to 16 bytes, or -1 if they never are.
std::int64_t aligned_head(const NaryPlan& plan) {
  const auto misalignment = reinterpret_cast<std::uintptr_t>(plan.outs[0]) % 16;
  const auto agrees = [misalignment](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == misalignment;
  };
  if (!std::all_of(plan.outs, plan.outs + plan.out_count, agrees) ||
      !std::all_of(plan.inputs, plan.inputs + plan.input_count, agrees)) {
    return -1;
  }
  const std::size_t bytes = (16 - misalignment) % 16;
  const auto head = static_cast<std::int64_t>(bytes / element_size(plan.dtype));
  return head < plan.count ? head : plan.count;
}

// Two blocks per multiprocessor of a large GPU. More loads in flight only congest the switch.
constexpr std::int64_t kMostBlocks = 264;

void launch_items(void* stream, const NaryBatchPlan& plan, std::size_t first, std::size_t count) {
  const auto each = static_cast<std::size_t>(plan.input_count);
  NaryBatchTable table;
  table.op = plan.op;
  table.input_count = plan.input_count;
  table.item_count = static_cast<std::int32_t>(count);
  table.divisor = plan.divisor;
  const auto per_chunk = static_cast<std::int64_t>(kThreads * 16 / element_size(plan.dtype));
  std::uint32_t chunks = 0;
  const void** row = table.addresses;
  for (std::size_t r = 0; r < count; ++r) {
    const NaryItem& item = plan.items[first + r];
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(item.out);
    for (std::size_t k = 0; k < each; ++k) {
      const void* input = plan.inputs[(first + r) * each + k];
      bits |= reinterpret_cast<std::uintptr_t>(input);
      *row++ = input;
    }
    *row++ = item.out;
    table.counts[r] = bits % 16 == 0 ? item.count : -item.count;
    table.first_chunks[r] = chunks;
    chunks += static_cast<std::uint32_t>((item.count + per_chunk - 1) / per_chunk);
  }
  if (chunks == 0) return;
  table.chunks = chunks;
  const auto blocks = std::min<std::uint32_t>(chunks, static_cast<std::uint32_t>(kMostBlocks));
  dispatch_nary(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = 16 / sizeof(T);
    launch("nary_batched", stream, blocks, kThreads, 0, nary_batched_kernel<T, V>, table);
  });
}

}  // namespace

void nary(void* stream, const NaryPlan& plan) {
  const std::int64_t head = aligned_head(plan);
  dispatch_nary(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = 16 / sizeof(T);
    const auto blocks = [](std::int64_t items) {
      const std::int64_t wanted = blocks_for(items);
      return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
    };
    if (head >= 0) {
      launch("nary", stream, blocks((plan.count + V - 1) / V), kThreads, 0, nary_kernel<T, V>, plan,
             head);
    } else {
      launch("nary", stream, blocks(plan.count), kThreads, 0, nary_kernel<T, 1>, plan,
             std::int64_t{0});
    }
  });
}

void nary_batched(void* stream, const NaryBatchPlan& plan) {
  const std::size_t row = static_cast<std::size_t>(plan.input_count) + 1;
  const std::size_t most = std::min(NaryBatchTable::kItems, NaryBatchTable::kAddresses / row);
  for (std::size_t first = 0; first < plan.items.size(); first += most) {
    launch_items(stream, plan, first, std::min(most, plan.items.size() - first));
  }
}

}  // namespace gantry::kernels::cuda
