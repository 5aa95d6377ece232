#include "kernels/host/linalg/matrix_product.hpp"
#include "kernels/host/linalg/paired_product.hpp"

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

bool multiplies_pairs() { return false; }
void pair_rows(std::uint32_t*, const Bf16Matrix&, std::int64_t, std::int64_t) {
  __builtin_unreachable();
}
void multiply_pairs(float*, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t,
                    const PairedMatrix&, bool) {
  __builtin_unreachable();
}

}  // namespace gantry::kernels::host
