// Functors of copies, fills, arange and triangles, and their dispatch to a Loop.
#pragma once

#include "kernels/impl/raw.inl"
#include "kernels/math/math.hpp"

namespace gantry::kernels {
namespace functors {

// The Loop converts the result.
struct Identity {
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return x;
  }
};
template <class C>
struct Constant {
  C value;
  GANTRY_HD C operator()() const { return value; }
};
// start + i * step. C is f64 for floating elements and i64 for integers. Integers wrap. A product
// beyond the range of f64 is added before it is rounded.
template <class C>
struct Ramp {
  C start;
  C step;
  GANTRY_HD C operator()(std::int64_t i) const {
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<U>(start) + static_cast<U>(i) * static_cast<U>(step));
    } else {
      const C product = static_cast<C>(i) * step;
      return product - product == 0 ? start + product : math::fma(static_cast<C>(i), step, start);
    }
  }
};
// Keeps x or gives 0. `distance` is column - row.
template <class C>
struct Triangle {
  bool lower;
  std::int64_t diagonal;
  GANTRY_HD C operator()(std::int64_t distance, C x) const {
    return (lower ? distance <= diagonal : distance >= diagonal) ? x : C(0);
  }
};

}  // namespace functors

template <class Loop>
void run_copy(const Loop& loop, const TensorRef& out, const TensorRef& in) {
  if (out.dtype == in.dtype) {
    dispatch_words(out.dtype, [&](auto tag) {
      using W = typename decltype(tag)::type;
      loop.template run<W>("copy", functors::Identity{}, out, tensor_input<W>(in));
    });
    return;
  }
  dispatch(out.dtype, [&](auto out_tag) {
    using To = typename decltype(out_tag)::type;
    dispatch(in.dtype, [&](auto in_tag) {
      using From = typename decltype(in_tag)::type;
      if constexpr (!std::is_same_v<To, From>) {
        loop.template run<To>("copy", functors::Identity{}, out, tensor_input<From>(in));
      }
    });
  });
}

template <class Loop>
void run_fill(const Loop& loop, const TensorRef& out, const Scalar& value) {
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    using C = ComputeType<W>;
    const W word = number_word<W>(value, out.dtype);
    loop.template run<W>("fill", functors::Constant<C>{static_cast<C>(word)}, out);
  });
}

template <class Loop>
void run_arange(const Loop& loop, const TensorRef& out, const Scalar& start, const Scalar& step,
                std::int64_t first) {
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_floating_point_v<ComputeType<T>>, double, std::int64_t>;
    loop.template run<T>("arange", functors::Ramp<C>{number_as<C>(start), number_as<C>(step)}, out,
                         index_input(out, first));
  });
}

template <class Loop>
void run_triangle(const Loop& loop, const TensorRef& out, const TensorRef& in, bool lower,
                  std::int64_t diagonal) {
  Input<Counter> distance{{0}, {}};
  distance.strides[out.ndim - 1] = 1;
  distance.strides[out.ndim - 2] = -1;
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    loop.template run<W>("triangle", functors::Triangle<ComputeType<W>>{lower, diagonal}, out,
                         distance, tensor_input<W>(in));
  });
}

}  // namespace gantry::kernels
