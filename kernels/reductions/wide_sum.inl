// Sums and products of which partial results overflow: Note [Overflowing chunks]. Shared by the
// host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/code_size.hpp"
#include "kernels/math/math.hpp"
#include "kernels/reductions/accumulator.hpp"
#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels {

// True if results of `op` that are not finite are computed again.
GANTRY_HD constexpr bool is_repeated(Reduction op, DType accumulator) {
  return (op == Reduction::sum || op == Reduction::prod) && is_floating_point(accumulator);
}

// True if an accumulator of reducer R is computed again before it is stored. Of a product, also
// the rounding to the result's dtype counts.
template <class R, class Acc>
GANTRY_HD bool is_repeated(const ReducePlan& plan, Acc value) {
  if constexpr (R::kIsRepeated) {
    if (!is_repeated(plan.op, plan.accumulator)) return false;
    if (!is_finite(value)) return true;
    if constexpr (R::kOp == Reduction::prod) {
      if (plan.out_dtype == DType::f16) return !is_finite(from_accumulator<float16>(value));
      if (plan.out_dtype == DType::bf16) return !is_finite(from_accumulator<bfloat16>(value));
    }
  }
  return false;
}

// Note [Small repetitions]
// A repetition is rare, but a GPU reserves registers and stack for it in every thread of a kernel
// that may call it. So its loops stay rolled, its parts are calls, and it holds one element. The
// next elements are on their way to the cache meanwhile.

// An element of a floating dtype, in f64.
GANTRY_HD inline double element_as_f64(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::f16:
      return static_cast<float>(static_cast<const float16*>(data)[at]);
    case DType::bf16:
      return static_cast<float>(static_cast<const bfloat16*>(data)[at]);
    case DType::f32:
      return static_cast<const float*>(data)[at];
    case DType::f64:
      return static_cast<const double*>(data)[at];
    case DType::bool_:
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;
  }
  return 0;
}

// Where element `k` of an output lies.
GANTRY_HD GANTRY_NOINLINE inline std::int64_t element_offset(const ReduceSource& source,
                                                             std::int64_t output, std::int64_t k) {
  return source.kept.offset(output) + source.reduced.offset(k);
}

// Begins to bring element `k` into a GPU's cache.
GANTRY_HD GANTRY_NOINLINE inline void prefetch_element(const ReduceSource& source,
                                                       std::int64_t output, std::int64_t k) {
  if (GANTRY_GPU_ARCH == 0 || k >= source.length) return;
  const std::int64_t size = source.dtype == DType::f64 ? 8 : source.dtype == DType::f32 ? 4 : 2;
  [[maybe_unused]] const char* const address =
      static_cast<const char*>(source.data) + element_offset(source, output, k) * size;
  GANTRY_PTX("prefetch.global.L2 [%0];" ::"l"(address));
}

// Calls f(element in f64) for `count` elements of an output from element `first` on, until it
// returns false.
template <class F>
GANTRY_HD void for_elements(const ReduceSource& source, std::int64_t output, std::int64_t first,
                            std::int64_t count, const F& f) {
  constexpr std::int64_t kAhead = 16;
  GANTRY_ROLLED
  for (std::int64_t k = first; k < first + count; ++k) {
    prefetch_element(source, output, k + kAhead);
    if (!f(element_as_f64(source.data, source.dtype, element_offset(source, output, k)))) return;
  }
}

// The sum of `count` elements of an output, left to right.
GANTRY_HD inline WideSum wide_sum(const ReduceSource& source, std::int64_t output,
                                  std::int64_t first, std::int64_t count) {
  WideSum total;
  for_elements(source, output, first, count, [&total](double element) {
    total.add(element);
    return element == element;  // a sum with a NaN is NaN
  });
  return total;
}

// The results of an output's chunks.
template <class Acc>
struct ChunkResults {
  const Acc* results;
  const WideSum* wide;  // of results that are not finite
  std::int64_t stride;
  std::int64_t count;

  // The sum of `n` results from `first` on, left to right.
  GANTRY_HD WideSum sum(std::int64_t first, std::int64_t n) const {
    WideSum total;
    GANTRY_ROLLED
    for (std::int64_t k = first; k < first + n; ++k) {
      const Acc result = results[k * stride];
      if (is_finite(result)) {
        total.add(static_cast<double>(result));
      } else {
        total.add(wide[k * stride]);
      }
    }
    return total;
  }
};

// The value of a result of `kOp` that is not finite, computed again. `chunks` has no results if the
// output has one chunk.
template <Reduction kOp, class Acc>
GANTRY_HD Acc repeated(const ReduceSource& source, std::int64_t output,
                       const ChunkResults<Acc>& chunks, Acc value) {
  static_assert(kOp == Reduction::sum || kOp == Reduction::prod);
  if constexpr (kOp == Reduction::sum) {
    const WideSum total =
        chunks.count > 0 ? chunks.sum(0, chunks.count) : wide_sum(source, output, 0, source.length);
    return static_cast<Acc>(total.value());
  } else {
    if (chunks.count > 0 && !chunks.sum(0, chunks.count).is_finite())
      return value;  // nor an element
    Acc product = 1;
    for_elements(source, output, 0, source.length, [&product](double element) {
      product *= static_cast<Acc>(element);
      return is_finite(product);
    });
    return is_finite(product) ? product : value;
  }
}

}  // namespace gantry::kernels
