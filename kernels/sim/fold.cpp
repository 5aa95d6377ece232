#include <algorithm>
#include <cstring>

#include "kernels/impl/fold.inl"

namespace gantry::kernels::host {

namespace {

// Elements whose accumulators stay in the cache while the inputs pass by.
constexpr std::int64_t kBlock = 1024;

template <class F>
void fold_block(const FoldPlan& plan, std::int64_t first, std::int64_t count) {
  using Acc = typename F::Acc;
  using Stored = typename F::Stored;
  Acc accumulators[kBlock];
  const auto* in = static_cast<const Stored*>(plan.inputs[0]) + first;
  for (std::int64_t i = 0; i < count; ++i) accumulators[i] = F::load(in[i]);
  for (int k = 1; k < plan.input_count; ++k) {
    in = static_cast<const Stored*>(plan.inputs[k]) + first;
    for (std::int64_t i = 0; i < count; ++i) {
      accumulators[i] = F::combine(accumulators[i], F::load(in[i]));
    }
  }
  auto* out = static_cast<Stored*>(plan.outs[0]) + first;
  for (std::int64_t i = 0; i < count; ++i) out[i] = F::finish(accumulators[i], plan.divisor);
  for (int k = 1; k < plan.out_count; ++k) {
    std::memcpy(static_cast<Stored*>(plan.outs[k]) + first, out,
                static_cast<std::size_t>(count) * sizeof(Stored));
  }
}

}  // namespace

void fold(const FoldPlan& plan) {
  dispatch(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_fold<T>(plan.op, [&](auto folder) {
      using F = typename decltype(folder)::type;
      if constexpr (F::kIsDefined) {
        for (std::int64_t first = 0; first < plan.count; first += kBlock) {
          fold_block<F>(plan, first, std::min(kBlock, plan.count - first));
        }
      }
    });
  });
}

void fold_runs(const FoldRunsPlan& plan) {
  FoldPlan one;
  one.op = plan.op;
  one.dtype = plan.dtype;
  one.input_count = plan.input_count;
  one.out_count = 1;
  one.divisor = plan.divisor;
  const auto each = static_cast<std::size_t>(plan.input_count);
  for (std::size_t r = 0; r < plan.runs.size(); ++r) {
    one.outs[0] = plan.runs[r].out;
    one.count = plan.runs[r].count;
    std::copy_n(plan.inputs.data() + r * each, each, one.inputs);
    fold(one);
  }
}

}  // namespace gantry::kernels::host
