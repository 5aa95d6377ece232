// The operations of reduction kernels, as types. An object holds what stays open until the launch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/impl/reduce.inl"

namespace gantry::kernels::cuda {

// Note [Reducers]
// A chunk has 128 accumulators. Each takes in its elements and is then closed, which makes a State
// of it; a tree combines the states. A reducer has
//  - start(), an Accumulator without an element; take(into, element, k) for element k of a chunk;
//    close(accumulator, count, first), the State of `count` elements of the chunk that begins at
//    element `first` of the reduction;
//  - neutral(), the State of no element, and combine(a, b), of which only b or both may be neutral;
//  - finish(state), and Merge, which reduces the finished results of chunks;
//  - write(plan, output, state), if the State is several numbers;
//  - perhaps only(element), the State of one element, and, if the State is several numbers,
//    combine_sized<m, n>(a, b), which combines States of m and n elements.

// The members of a reducer whose Accumulator and State are one number.
template <class R, class Acc>
struct NumberReducer {
  using Accumulator = Acc;
  using State = Acc;

  __device__ Acc start() const { return R::neutral(); }
  template <class In>
  __device__ void take(Acc& into, In element, int) const {
    const R& self = static_cast<const R&>(*this);
    into = self.combine(into, self.load(element));
  }
  __device__ Acc close(Acc accumulator, int, std::int64_t) const { return accumulator; }
  template <class In>
  __device__ Acc only(In element) const {
    return static_cast<const R&>(*this).load(element);
  }
};

// True if the State of R is several numbers.
template <class R>
constexpr bool kHasState = !std::is_arithmetic_v<typename R::State>;

// Combines states of R, the results of chunks.
template <class R>
struct StateMerge : R {
  using Accumulator = typename R::State;
  using Merge = StateMerge;

  StateMerge() = default;
  explicit StateMerge(const ReducePlan& plan) : R(plan) {}
  __device__ Merge merge() const { return *this; }
  __device__ static Accumulator start() { return R::neutral(); }
  __device__ static void take(Accumulator& into, const Accumulator& state, int k) {
    into = k < kReduceAccumulators ? state : R::combine(into, state);
  }
  __device__ static Accumulator close(const Accumulator& state, int, std::int64_t) { return state; }
  __device__ static Accumulator finish(const Accumulator& state) { return state; }
};

// Reduces elements to states of R.
template <class R>
struct StateReducer : R {
  using Merge = StateMerge<R>;

  explicit StateReducer(const ReducePlan& plan) : R(plan) {}
  __device__ Merge merge() const { return {}; }
  __device__ static typename R::State finish(const typename R::State& state) { return state; }
};

template <class Acc>
struct SumReducer : Reducer<Reduction::sum, Acc>, NumberReducer<SumReducer<Acc>, Acc> {
  using Merge = SumReducer;

  SumReducer() = default;
  explicit SumReducer(const ReducePlan&) {}
  __device__ Merge merge() const { return *this; }
  template <class In>
  __device__ static Acc load(In element) {
    return static_cast<Acc>(element);
  }
  __device__ static Acc finish(Acc result) { return result; }
};

template <class Acc>
struct ProductReducer : Reducer<Reduction::prod, Acc>, NumberReducer<ProductReducer<Acc>, Acc> {
  using Merge = ProductReducer;

  explicit ProductReducer(const ReducePlan&) {}
  __device__ Merge merge() const { return *this; }
  template <class In>
  __device__ static Acc load(In element) {
    return static_cast<Acc>(element);
  }
  __device__ static Acc finish(Acc result) { return result; }
};

// The maximum, and the minimum as the maximum of mirrored values: the sign bit of a floating value
// flipped, every bit of an integer. Both mirrors reverse the order and are their own inverse.
template <class Acc>
class ExtremeReducer : public Reducer<Reduction::max, Acc>,
                       public NumberReducer<ExtremeReducer<Acc>, Acc> {
 public:
  using Merge = ExtremeReducer;

  explicit ExtremeReducer(const ReducePlan& plan)
      : mirror_(merging_reduction(plan.op) == Reduction::max ? 0
                : std::is_same_v<Acc, std::int64_t>          ? ~std::uint64_t{0}
                                                    : std::uint64_t{1} << (sizeof(Acc) * 8 - 1)) {}
  __device__ Merge merge() const { return *this; }
  template <class In>
  __device__ Acc load(In element) const {
    return mirrored(static_cast<Acc>(element));
  }
  __device__ Acc finish(Acc result) const { return mirrored(result); }

 private:
  __device__ Acc mirrored(Acc value) const {
    if constexpr (std::is_same_v<Acc, float>) {
      return __uint_as_float(__float_as_uint(value) ^ static_cast<std::uint32_t>(mirror_));
    } else if constexpr (std::is_same_v<Acc, double>) {
      return __longlong_as_double(__double_as_longlong(value) ^ static_cast<long long>(mirror_));
    } else {
      return value ^ static_cast<std::int64_t>(mirror_);
    }
  }

  std::uint64_t mirror_;
};

// The sum of squares, of which finished() takes the root, or of magnitudes.
template <class Acc>
class NormReducer : public Reducer<Reduction::sum, Acc>,
                    public NumberReducer<NormReducer<Acc>, Acc> {
 public:
  static constexpr bool kIsRepeated = false;  // such sums only grow
  using Merge = SumReducer<Acc>;

  explicit NormReducer(const ReducePlan& plan)
      : kept_bits_(plan.op == Reduction::norm2 ? ~Bits{0} : __builtin_bit_cast(Bits, Acc(-0.0))),
        set_bits_(plan.op == Reduction::norm2 ? Bits{0} : __builtin_bit_cast(Bits, Acc(1))) {}
  __device__ Merge merge() const { return {}; }
  // The element times itself, or times 1 with its sign: one operation on bits and a product.
  template <class In>
  __device__ Acc load(In element) const {
    const Acc value = static_cast<Acc>(element);
    const Bits factor = (__builtin_bit_cast(Bits, value) & kept_bits_) | set_bits_;
    return value * __builtin_bit_cast(Acc, factor);
  }
  __device__ static Acc finish(Acc result) { return result; }

 private:
  using Bits = std::conditional_t<sizeof(Acc) == 8, std::uint64_t, std::uint32_t>;

  Bits kept_bits_;
  Bits set_bits_;
};

// The bits of an element of which one is set unless it is zero: all but the sign of a floating
// element, so that -0 is zero.
constexpr std::uint64_t nonzero_mask(DType dtype) {
  if (!is_floating_point(dtype)) return ~std::uint64_t{0};
  return (std::uint64_t{1} << (element_size(dtype) * 8 - 1)) - 1;
}
static_assert(nonzero_mask(DType::f64) == INT64_MAX && nonzero_mask(DType::bf16) == INT16_MAX);

// The number of elements that are not zero. any and all follow from it. An accumulator, which holds
// at most 128 elements of a chunk, counts in 32 bits.
class NonzeroReducer : public Reducer<Reduction::sum, std::int64_t> {
 public:
  using Accumulator = std::int32_t;
  using State = std::int64_t;
  using Merge = SumReducer<std::int64_t>;

  explicit NonzeroReducer(const ReducePlan& plan) : mask_(nonzero_mask(plan.in_dtype)) {}
  __device__ Merge merge() const { return {}; }
  __device__ static Accumulator start() { return 0; }
  template <class In>
  __device__ void take(Accumulator& into, In element, int) const {
    into += is_nonzero(element) ? 1 : 0;
  }
  __device__ static State close(Accumulator accumulator, int, std::int64_t) { return accumulator; }
  template <class In>
  __device__ State only(In element) const {
    return is_nonzero(element) ? 1 : 0;
  }
  __device__ static State finish(State result) { return result; }

 private:
  template <class In>
  __device__ bool is_nonzero(In element) const {
    using Bits = std::conditional_t<sizeof(In) == 8, std::uint64_t, std::uint32_t>;
    return (static_cast<Bits>(element) & static_cast<Bits>(mask_)) != 0;
  }

  std::uint64_t mask_;
};

}  // namespace gantry::kernels::cuda
