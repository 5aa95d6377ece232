#include "kernels/impl/softmax.inl"

#include <vector>

#include "kernels/fibre_plan.hpp"
#include "kernels/sim/reductions/chunks.hpp"

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

template <class T>
void softmax_fibres(bool logarithm, const FibrePlan& plan) {
  using Acc = AccumulatorType<T>;
  using Sum = SoftmaxSum<Acc>;
  const std::int64_t length = plan.length;
  const std::int64_t in_stride = plan.in.stride;
  const std::int64_t out_stride = plan.out.stride;
  std::vector<Acc> values(static_cast<std::size_t>(length));
  std::vector<Acc> exponentials(values);
  for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    read_fibre(values.data(), in, in_stride, length);
    const Acc maximum = largest(values.data(), length);
    with_fma([&, from = values.data(), to = exponentials.data()] {
      for (std::int64_t k = 0; k < length; ++k) to[k] = exponential(from[k] - maximum);
    });
    const Acc sum = reduce_contiguous<Sum, Sum, Acc>(exponentials.data(), length);
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
    with_fma([&, from = values.data(), to = exponentials.data()] {
      if (logarithm) {
        for (std::int64_t k = 0; k < length; ++k)
          to[k] = softmax_element(true, from[k], maximum, tail);
      } else {
        for (std::int64_t k = 0; k < length; ++k) to[k] = to[k] / tail;
      }
    });
    write_fibre(out, out_stride, exponentials.data(), length);
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
