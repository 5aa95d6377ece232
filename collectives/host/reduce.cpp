#include "collectives/host/reduce.hpp"

#include <algorithm>

#include "kernels/impl/nary.inl"

namespace gantry {

namespace {

// Elements whose accumulators stay in the cache while the inputs pass by.
constexpr std::int64_t kBlock = 1024;

// Loops without branches: the compiler makes vector instructions of them.
template <class F, bool kIsScaled>
typename F::Acc load(typename F::Stored element, double scale) {
  if constexpr (kIsScaled) {
    return F::load(element) * static_cast<typename F::Acc>(scale);
  } else {
    return F::load(element);
  }
}

template <class F, bool kIsScaled>
void accumulate(double scale, std::span<const void* const> inputs, std::int64_t first,
                std::int64_t count, typename F::Acc* accumulators) {
  const auto* in = static_cast<const typename F::Stored*>(inputs.front()) + first;
  for (std::int64_t i = 0; i < count; ++i) accumulators[i] = load<F, kIsScaled>(in[i], scale);
  for (const void* input : inputs.subspan(1)) {
    in = static_cast<const typename F::Stored*>(input) + first;
    for (std::int64_t i = 0; i < count; ++i) {
      accumulators[i] = F::combine(accumulators[i], load<F, kIsScaled>(in[i], scale));
    }
  }
}

template <class F>
void finish(double divisor, const typename F::Acc* accumulators, std::int64_t count,
            typename F::Stored* out) {
  if (divisor == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = F::finish(accumulators[i], 1);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = F::finish(accumulators[i], divisor);
  }
}

template <class F>
void reduce_block(double divisor, double scale, void* out, std::span<const void* const> inputs,
                  std::int64_t first, std::int64_t count) {
  typename F::Acc accumulators[kBlock];
  if (F::kIsFloating && scale != 1) {
    accumulate<F, F::kIsFloating>(scale, inputs, first, count, accumulators);
  } else {
    accumulate<F, false>(scale, inputs, first, count, accumulators);
  }
  finish<F>(divisor, accumulators, count, static_cast<typename F::Stored*>(out) + first);
}

}  // namespace

void reduce_on_host(const NaryReduction& how, double scale, void* out,
                    std::span<const void* const> inputs, std::int64_t count, DType dtype) {
  const kernels::NaryKernel kernel = kernels::nary_kernel(how.op, dtype);
  kernels::dispatch_nary(kernel.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::with_nary_functor<T>(kernel.op, [&](auto functor) {
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
