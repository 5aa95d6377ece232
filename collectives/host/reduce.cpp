#include "collectives/host/reduce.hpp"

#include <algorithm>

#include "kernels/impl/nary.inl"

namespace gantry {

namespace {

// Elements whose accumulators stay in the cache while the inputs pass by.
constexpr std::int64_t kBlock = 1024;

template <class F>
typename F::Acc load_scaled(typename F::Stored element, double scale) {
  if constexpr (F::kIsFloating) {
    if (scale != 1) return F::load(element) * static_cast<typename F::Acc>(scale);
  }
  return F::load(element);
}

template <class F>
void reduce_block(double divisor, double scale, void* out, std::span<const void* const> inputs,
                  std::int64_t first, std::int64_t count) {
  using Stored = typename F::Stored;
  typename F::Acc accumulators[kBlock];
  const auto* in = static_cast<const Stored*>(inputs.front()) + first;
  for (std::int64_t i = 0; i < count; ++i) accumulators[i] = load_scaled<F>(in[i], scale);
  for (const void* input : inputs.subspan(1)) {
    in = static_cast<const Stored*>(input) + first;
    for (std::int64_t i = 0; i < count; ++i) {
      accumulators[i] = F::combine(accumulators[i], load_scaled<F>(in[i], scale));
    }
  }
  auto* result = static_cast<Stored*>(out) + first;
  for (std::int64_t i = 0; i < count; ++i) result[i] = F::finish(accumulators[i], divisor);
}

}  // namespace

void reduce_on_host(const Reduction& how, double scale, void* out,
                    std::span<const void* const> inputs, std::int64_t count, DType dtype) {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::with_nary_functor<T>(how.op, [&](auto functor) {
      using F = typename decltype(functor)::type;
      if constexpr (F::kIsDefined) {
        for (std::int64_t first = 0; first < count; first += kBlock) {
          reduce_block<F>(how.divisor, scale, out, inputs, first, std::min(kBlock, count - first));
        }
      }
    });
  });
}

}  // namespace gantry
