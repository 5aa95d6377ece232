#include "kernels/host/host_fma.hpp"
#include "kernels/host/linalg/matrix_product.hpp"

namespace gantry::kernels::host {

void multiply_baseline(const RowMajor<float>& out, const RowMajor<const float>& a,
                       const RowMajor<const float>& b);
void multiply_baseline(const RowMajor<double>& out, const RowMajor<const double>& a,
                       const RowMajor<const double>& b);
void multiply_avx2(const RowMajor<float>& out, const RowMajor<const float>& a,
                   const RowMajor<const float>& b);
void multiply_avx2(const RowMajor<double>& out, const RowMajor<const double>& a,
                   const RowMajor<const double>& b);

void multiply(const RowMajor<float>& out, const RowMajor<const float>& a,
              const RowMajor<const float>& b) {
  has_fma() ? multiply_avx2(out, a, b) : multiply_baseline(out, a, b);
}
void multiply(const RowMajor<double>& out, const RowMajor<const double>& a,
              const RowMajor<const double>& b) {
  has_fma() ? multiply_avx2(out, a, b) : multiply_baseline(out, a, b);
}

}  // namespace gantry::kernels::host
