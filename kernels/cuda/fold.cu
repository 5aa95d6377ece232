#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"
#include "kernels/impl/fold.inl"

namespace gantry::kernels::cuda {

namespace {

// Inputs that one thread has in flight: they may be a peer's, a microsecond away.
constexpr int kInFlight = 8;

template <class Stored, int V>
struct alignas(sizeof(Stored) * V) Word {
  Stored elements[V];
};

// Folds the V elements at `at`, to which all addresses are aligned; input(k) is input k's address.
// F is fixed before any loop begins: a choice between loads and sums would keep loads waiting.
template <class F, int V, class Input>
__device__ Word<typename F::Stored, V> fold_word(double divisor, int input_count, std::int64_t at,
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
__device__ void fold_into_outs(const FoldPlan& plan, std::int64_t at) {
  using Stored = typename F::Stored;
  using Vector = Word<Stored, V>;
  const Vector result =
      fold_word<F, V>(plan.divisor, plan.input_count, at, [&](int k) { return plan.inputs[k]; });
  // Blocks begin with different receivers, so that no link serves all at once.
  const int outs = plan.out_count;
  int out = static_cast<int>(blockIdx.x % static_cast<unsigned>(outs));
  for (int k = 0; k < outs; ++k) {
    *reinterpret_cast<Vector*>(static_cast<Stored*>(plan.outs[out]) + at) = result;
    if (++out == outs) out = 0;
  }
}

// The first `head` elements and those after the last whole word go one by one.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const __grid_constant__ FoldPlan plan, std::int64_t head) {
  with_fold<T>(plan.op, [&](auto folder) {
    using F = typename decltype(folder)::type;
    if constexpr (F::kIsDefined) {
      const std::int64_t words = (plan.count - head) / V;
      for (std::int64_t i = first_index(); i < words; i += index_step()) {
        fold_into_outs<F, V>(plan, head + i * V);
      }
      if constexpr (V > 1) {
        const std::int64_t single = first_index();
        const std::int64_t tail = head + words * V;
        if (single < head) fold_into_outs<F, 1>(plan, single);
        if (single < plan.count - tail) fold_into_outs<F, 1>(plan, tail + single);
      }
    }
  });
}

// Several folds as a kernel takes them: by value, so that a launch needs no memory and can be
// captured. Kernel parameters end at 32,764 bytes.
struct FoldTable {
  static constexpr std::size_t kRuns = 512;
  static constexpr std::size_t kAddresses = 2560;

  FoldOp op;
  std::int32_t input_count;
  std::int32_t run_count;
  std::uint32_t chunks;
  double divisor;
  std::uint32_t first_chunks[kRuns];
  std::int64_t counts[kRuns];         // negative: the addresses are not all aligned to 16 bytes
  const void* addresses[kAddresses];  // of run 0: the inputs', then the output's
};
static_assert(sizeof(FoldTable) <= 32764);

// Each block folds chunks of kThreads * V elements.
template <class F, int V>
__device__ void fold_chunks(const FoldTable& table) {
  using Stored = typename F::Stored;
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    const int at = run_of(table, chunk);
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
            fold_word<F, V>(table.divisor, table.input_count, at, input);
      }
    }
    for (std::int64_t at = done + threadIdx.x; at < end; at += kThreads) {
      out[at] = fold_word<F, 1>(table.divisor, table.input_count, at, input).elements[0];
    }
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    fold_runs_kernel(const __grid_constant__ FoldTable table) {
  with_fold<T>(table.op, [&](auto folder) {
    using F = typename decltype(folder)::type;
    if constexpr (F::kIsDefined) fold_chunks<F, V>(table);
  });
}

// The fewest elements before all addresses are aligned to 16 bytes, or -1 if they never are.
std::int64_t aligned_head(const FoldPlan& plan) {
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

// Two blocks per multiprocessor of a large GPU: what is more only queues up in the switch.
constexpr std::int64_t kMostBlocks = 264;

void launch_runs(void* stream, const FoldRunsPlan& plan, std::size_t first, std::size_t count) {
  const auto each = static_cast<std::size_t>(plan.input_count);
  FoldTable table;
  table.op = plan.op;
  table.input_count = plan.input_count;
  table.run_count = static_cast<std::int32_t>(count);
  table.divisor = plan.divisor;
  const auto per_chunk = static_cast<std::int64_t>(kThreads * 16 / element_size(plan.dtype));
  std::uint32_t chunks = 0;
  const void** row = table.addresses;
  for (std::size_t r = 0; r < count; ++r) {
    const FoldRun& run = plan.runs[first + r];
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(run.out);
    for (std::size_t k = 0; k < each; ++k) {
      const void* input = plan.inputs[(first + r) * each + k];
      bits |= reinterpret_cast<std::uintptr_t>(input);
      *row++ = input;
    }
    *row++ = run.out;
    table.counts[r] = bits % 16 == 0 ? run.count : -run.count;
    table.first_chunks[r] = chunks;
    chunks += static_cast<std::uint32_t>((run.count + per_chunk - 1) / per_chunk);
  }
  if (chunks == 0) return;
  table.chunks = chunks;
  const auto blocks = std::min<std::uint32_t>(chunks, static_cast<std::uint32_t>(kMostBlocks));
  dispatch(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = 16 / sizeof(T);
    launch("fold_runs", stream, blocks, kThreads, 0, fold_runs_kernel<T, V>, table);
  });
}

}  // namespace

void fold(void* stream, const FoldPlan& plan) {
  const std::int64_t head = aligned_head(plan);
  dispatch(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = 16 / sizeof(T);
    const auto blocks = [](std::int64_t items) {
      const std::int64_t wanted = blocks_for(items);
      return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
    };
    if (head >= 0) {
      launch("fold", stream, blocks((plan.count + V - 1) / V), kThreads, 0, fold_kernel<T, V>, plan,
             head);
    } else {
      launch("fold", stream, blocks(plan.count), kThreads, 0, fold_kernel<T, 1>, plan,
             std::int64_t{0});
    }
  });
}

void fold_runs(void* stream, const FoldRunsPlan& plan) {
  const std::size_t row = static_cast<std::size_t>(plan.input_count) + 1;
  const std::size_t most = std::min(FoldTable::kRuns, FoldTable::kAddresses / row);
  for (std::size_t first = 0; first < plan.runs.size(); first += most) {
    launch_runs(stream, plan, first, std::min(most, plan.runs.size() - first));
  }
}

}  // namespace gantry::kernels::cuda
