#include <algorithm>
#include <cstring>

#include "kernels/impl/nary.inl"

namespace gantry::kernels::host {

namespace {

// Elements per tile. A tile's accumulators stay in the cache while its inputs are read.
constexpr std::int64_t kTile = 1024;

template <class F>
void nary_tile(const NaryPlan& plan, std::int64_t first, std::int64_t count) {
  using Acc = typename F::Acc;
  using Stored = typename F::Stored;
  Acc accumulators[kTile];
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

void nary(const NaryPlan& plan) {
  dispatch_nary(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_nary_functor<T>(plan.op, [&](auto functor) {
      using F = typename decltype(functor)::type;
      if constexpr (F::kIsDefined) {
        for (std::int64_t first = 0; first < plan.count; first += kTile) {
          nary_tile<F>(plan, first, std::min(kTile, plan.count - first));
        }
      }
    });
  });
}

void nary_batched(const NaryBatchPlan& plan) {
  NaryPlan single;
  single.op = plan.op;
  single.dtype = plan.dtype;
  single.input_count = plan.input_count;
  single.out_count = 1;
  single.divisor = plan.divisor;
  const auto each = static_cast<std::size_t>(plan.input_count);
  for (std::size_t r = 0; r < plan.items.size(); ++r) {
    single.outs[0] = plan.items[r].out;
    single.count = plan.items[r].count;
    std::copy_n(plan.inputs.data() + r * each, each, single.inputs);
    nary(single);
  }
}

}  // namespace gantry::kernels::host
