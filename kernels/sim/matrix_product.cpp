#define GANTRY_PRODUCT multiply_baseline
#include "kernels/sim/matrix_product.inl"

#include "kernels/sim/host_fma.hpp"

namespace gantry::kernels::host {

#ifdef GANTRY_HAS_AVX2_PRODUCT
void multiply_avx2(const RowMajor<float>& out, const RowMajor<const float>& a,
                   const RowMajor<const float>& b);
void multiply_avx2(const RowMajor<double>& out, const RowMajor<const double>& a,
                   const RowMajor<const double>& b);
#endif

namespace {

template <class T>
void multiply_best(const RowMajor<T>& out, const RowMajor<const T>& a, const RowMajor<const T>& b) {
#ifdef GANTRY_HAS_AVX2_PRODUCT
  if (has_fma()) return multiply_avx2(out, a, b);
#endif
  multiply_baseline(out, a, b);
}

}  // namespace

void multiply(const RowMajor<float>& out, const RowMajor<const float>& a,
              const RowMajor<const float>& b) {
  multiply_best(out, a, b);
}
void multiply(const RowMajor<double>& out, const RowMajor<const double>& a,
              const RowMajor<const double>& b) {
  multiply_best(out, a, b);
}

}  // namespace gantry::kernels::host
