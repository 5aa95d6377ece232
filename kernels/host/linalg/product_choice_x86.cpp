#include "kernels/host/capability.hpp"
#include "kernels/host/linalg/matrix_product.hpp"

namespace gantry::kernels::host {

void multiply_baseline(const MatrixView<float>& out, const MatrixView<const float>& a,
                       const MatrixView<const float>& b);
void multiply_baseline(const MatrixView<double>& out, const MatrixView<const double>& a,
                       const MatrixView<const double>& b);
void multiply_avx2(const MatrixView<float>& out, const MatrixView<const float>& a,
                   const MatrixView<const float>& b);
void multiply_avx2(const MatrixView<double>& out, const MatrixView<const double>& a,
                   const MatrixView<const double>& b);

void multiply(const MatrixView<float>& out, const MatrixView<const float>& a,
              const MatrixView<const float>& b) {
  capability() != Capability::baseline ? multiply_avx2(out, a, b) : multiply_baseline(out, a, b);
}
void multiply(const MatrixView<double>& out, const MatrixView<const double>& a,
              const MatrixView<const double>& b) {
  capability() != Capability::baseline ? multiply_avx2(out, a, b) : multiply_baseline(out, a, b);
}

}  // namespace gantry::kernels::host
