// Parts that the kernels of softmax for rows share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/distant_offset.cuh"
#include "kernels/impl/softmax.inl"
#include "kernels/input.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;

// The largest element of a row, or NaN if it has one. Which of -0 and +0 it is does not matter: it
// is only subtracted.
template <class Acc>
struct RowMax {
  __device__ static Acc neutral() { return SoftmaxMax<Acc>::neutral(); }
  __device__ static Acc combine(Acc a, Acc b) {
    if constexpr (std::is_same_v<Acc, float>) {
      float result;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
      return result;
    } else {
      return SoftmaxMax<Acc>::combine(a, b);
    }
  }
};

// Not inlined: it is seldom called, and its code would take registers of the caller.
template <class Acc, int N>
__device__ __noinline__ StoredPack<Acc, N> divided(StoredPack<Acc, N> dividends, Acc divisor) {
#pragma unroll
  for (int i = 0; i < N; ++i) dividends.values[i] = dividends.values[i] / divisor;
  return dividends;
}

// The last step on the elements of a row: the difference to the logarithm of the sum, or the
// quotient by the sum, which is at least 1 (or NaN) and less than 2^41.
//
// Note [Quotients by one divisor]
// An f32 quotient is computed from the correctly rounded reciprocal of the divisor. The product of
// dividend and reciprocal is within an ulp of the quotient. A correction by its exact remainder
// makes it correctly rounded, as a division is (Markstein's theorem). For tiny dividends the
// remainder is not exact, so these use a division.
template <class Acc>
class RowEnd {
 public:
  __device__ RowEnd(bool logarithm, Acc sum)
      : logarithm_(logarithm),
        tail_(logarithm ? natural_logarithm(sum) : sum),
        reciprocal_(Acc(1) / sum),
        error_(math::fma(-reciprocal_, sum, Acc(1)) * reciprocal_) {}

  // Ends elements in place: x - maximum for logarithms, else the exponentials of these.
  template <int N>
  __device__ void operator()(StoredPack<Acc, N>& pack) const {
    Acc(&values)[N] = pack.values;
    if (tail_ != tail_) {  // of a row with NaN or infinity
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = canonical(tail_);
      return;
    }
    if (logarithm_) {
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] -= tail_;
      return;
    }
    if constexpr (std::is_same_v<Acc, float>) {
      // No value is below 0; the key of a 0 becomes the largest number.
      std::uint32_t lowest = UINT32_MAX;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint32_t bits = __float_as_uint(values[i]) - 1;
        lowest = bits < lowest ? bits : lowest;
      }
      if (lowest >= kTiny - 1) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float quotient = math::fma(values[i], reciprocal_, values[i] * error_);
          const float remainder = math::fma(-quotient, tail_, values[i]);
          values[i] = math::fma(remainder, reciprocal_, quotient);
        }
        return;
      }
    }
    pack = divided(pack, tail_);
  }

  __device__ Acc operator()(Acc value) const {
    StoredPack<Acc, 1> pack = {value};
    (*this)(pack);
    return pack.values[0];
  }

 private:
  static constexpr std::uint32_t kTiny = 0x1b000000;  // the bits of 2^-73

  bool logarithm_;
  Acc tail_;
  Acc reciprocal_;
  Acc error_;
};

// A result of RowEnd, whose NaN is canonical, as an element of type T.
template <class T, class Acc>
__device__ T stored(Acc result) {
  return static_cast<T>(result);
}

template <class T, class Acc, int V>
__device__ StoredPack<T, V> stored_pack(const StoredPack<Acc, V>& results) {
  StoredPack<T, V> pack;
#pragma unroll
  for (int v = 0; v < V; ++v) pack.values[v] = stored<T>(results.values[v]);
  return pack;
}

// Elements of a wide access to long rows, and how many of them a thread has in flight.
template <class T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));
constexpr int kWideInFlight = 8;

// True if the rows are dense and begin and end on a multiple of V elements.
template <class T, int V>
bool has_wide_rows(const Fibres& rows, std::int64_t length) {
  if (rows.stride != 1 || length % V != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(rows.data) % (V * sizeof(T)) != 0) return false;
  for (int d = 0; d < rows.outer.ndim; ++d) {
    if (rows.outer.sizes[d] > 1 && rows.outer.strides[d] % V != 0) return false;
  }
  return true;
}

}  // namespace

}  // namespace gantry::kernels::cuda
