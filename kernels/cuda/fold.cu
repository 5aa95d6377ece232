#include "kernels/cuda/launch.cuh"
#include "kernels/impl/fold.inl"

namespace gantry::kernels::cuda {

namespace {

// Inputs that one thread has in flight: they may be a peer's, a microsecond away.
constexpr int kInFlight = 8;

template <class Stored, int V>
struct alignas(sizeof(Stored) * V) Word {
  Stored elements[V];
};

// Folds the V elements at `at`, to which all addresses are aligned.
template <class T, int V>
__device__ void fold_word(const FoldPlan& plan, std::int64_t at) {
  using Stored = typename Folder<T, FoldOp::sum>::Stored;
  using Acc = typename Folder<T, FoldOp::sum>::Acc;
  using Vector = Word<Stored, V>;
  Acc accumulators[V];
  for (int base = 0; base < plan.input_count; base += kInFlight) {
    const int rest = plan.input_count - base;
    Vector loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (k < rest) {
        loaded[k] = *reinterpret_cast<const Vector*>(
            static_cast<const Stored*>(plan.inputs[base + k]) + at);
      }
    }
    with_fold<T>(plan.op, [&](auto folder) {
      using F = typename decltype(folder)::type;
      if constexpr (F::kIsDefined) {
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
    });
  }
  Vector result;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    result.elements[i] = Folder<T, FoldOp::sum>::finish(accumulators[i], plan.divisor);
  }
  *reinterpret_cast<Vector*>(static_cast<Stored*>(plan.out) + at) = result;
}

// The first `head` elements and those after the last whole word go one by one.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const __grid_constant__ FoldPlan plan, std::int64_t head) {
  const std::int64_t words = (plan.count - head) / V;
  for (std::int64_t i = first_index(); i < words; i += index_step()) {
    fold_word<T, V>(plan, head + i * V);
  }
  if constexpr (V > 1) {
    const std::int64_t single = first_index();
    const std::int64_t tail = head + words * V;
    if (single < head) fold_word<T, 1>(plan, single);
    if (single < plan.count - tail) fold_word<T, 1>(plan, tail + single);
  }
}

// The fewest elements before all addresses are aligned to 16 bytes, or -1 if they never are.
std::int64_t aligned_head(const FoldPlan& plan) {
  const auto misalignment = reinterpret_cast<std::uintptr_t>(plan.out) % 16;
  for (int k = 0; k < plan.input_count; ++k) {
    if (reinterpret_cast<std::uintptr_t>(plan.inputs[k]) % 16 != misalignment) return -1;
  }
  const std::size_t bytes = (16 - misalignment) % 16;
  const auto head = static_cast<std::int64_t>(bytes / element_size(plan.dtype));
  return head < plan.count ? head : plan.count;
}

// Enough blocks to fill the largest GPU several times over.
constexpr std::int64_t kMostBlocks = 2048;

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

}  // namespace gantry::kernels::cuda
