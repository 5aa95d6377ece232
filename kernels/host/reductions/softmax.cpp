#include "kernels/impl/softmax.inl"

#include <type_traits>
#include <vector>

#include "kernels/host/reductions/chunks.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::host {

namespace {

// The largest element of `in`. Comparisons have no rounding: any order gives the same value, and
// NaN wins in each.
template <class Acc>
Acc largest(const Acc* in, std::int64_t count) {
  return reduce_contiguous<SoftmaxMax<Acc>, SoftmaxMax<Acc>, Acc>(in, count);
}

// Elements `stride` apart, as contiguous accumulators and back.
template <class Acc, class T>
void read_fibre(Acc* to, const T* from, std::int64_t stride, std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<Acc>(from[k]);
  } else {
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<Acc>(from[k * stride]);
  }
}
template <class T, class Acc>
void write_fibre(T* to, std::int64_t stride, const Acc* from, std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t k = 0; k < count; ++k) to[k] = from_accumulator<T>(from[k]);
  } else {
    for (std::int64_t k = 0; k < count; ++k) to[k * stride] = from_accumulator<T>(from[k]);
  }
}

// One fibre of contiguous accumulators, which may be in place. `exponentials` has room for one.
template <class Acc>
void softmax_dense(bool logarithm, Acc* out, const Acc* in, std::int64_t length,
                   Acc* exponentials) {
  using Sum = SoftmaxSum<Acc>;
  const Acc maximum = largest(in, length);
  if (!logarithm) exponentials = out;
  with_fma([=] {
    for (std::int64_t k = 0; k < length; ++k) exponentials[k] = exponential(in[k] - maximum);
  });
  const Acc sum = reduce_contiguous<Sum, Sum, Acc>(exponentials, length);
  const Acc tail = logarithm ? natural_logarithm(sum) : sum;
  with_fma([=] {
    if (logarithm) {
      for (std::int64_t k = 0; k < length; ++k)
        out[k] = from_accumulator<Acc>(softmax_element(true, in[k], maximum, tail));
    } else {
      for (std::int64_t k = 0; k < length; ++k) out[k] = from_accumulator<Acc>(out[k] / tail);
    }
  });
}

template <class T>
void softmax_fibres(bool logarithm, const FibrePlan& plan) {
  using Acc = AccumulatorType<T>;
  const std::int64_t length = plan.length;
  const bool is_dense = std::is_same_v<T, Acc> && plan.in.stride == 1 && plan.out.stride == 1;
  std::vector<Acc> values(is_dense ? 0 : static_cast<std::size_t>(length));
  std::vector<Acc> exponentials(is_dense && !logarithm ? 0 : static_cast<std::size_t>(length));
  for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    if constexpr (std::is_same_v<T, Acc>) {
      if (is_dense) {
        softmax_dense(logarithm, out, in, length, exponentials.data());
        continue;
      }
    }
    read_fibre(values.data(), in, plan.in.stride, length);
    softmax_dense(logarithm, values.data(), values.data(), length, exponentials.data());
    write_fibre(out, plan.out.stride, values.data(), length);
  }
}

}  // namespace

void softmax(bool logarithm, const FibrePlan& plan) {
  if (plan.length == 0) return;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) softmax_fibres<T>(logarithm, plan);
  });
}

}  // namespace gantry::kernels::host
