#include "kernels/host/linalg/matrix_product.hpp"

namespace gantry::kernels::host {

void multiply_baseline(const MatrixView<float>& out, const MatrixView<const float>& a,
                       const MatrixView<const float>& b);
void multiply_baseline(const MatrixView<double>& out, const MatrixView<const double>& a,
                       const MatrixView<const double>& b);

void multiply(const MatrixView<float>& out, const MatrixView<const float>& a,
              const MatrixView<const float>& b) {
  multiply_baseline(out, a, b);
}
void multiply(const MatrixView<double>& out, const MatrixView<const double>& a,
              const MatrixView<const double>& b) {
  multiply_baseline(out, a, b);
}

}  // namespace gantry::kernels::host
