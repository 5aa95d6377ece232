#include "kernels/host/capability.hpp"
#include "kernels/host/linalg/matrix_product.hpp"
#include "kernels/host/linalg/paired_product.hpp"

namespace gantry::kernels::host {

#define GANTRY_DECLARE_PRODUCT(name)                                          \
  void name(const MatrixView<float>& out, const MatrixView<const float>& a,   \
            const MatrixView<const float>& b);                                \
  void name(const MatrixView<double>& out, const MatrixView<const double>& a, \
            const MatrixView<const double>& b)
GANTRY_DECLARE_PRODUCT(multiply_baseline);
GANTRY_DECLARE_PRODUCT(multiply_avx2);
GANTRY_DECLARE_PRODUCT(multiply_avx512);
#undef GANTRY_DECLARE_PRODUCT

namespace {

template <class T>
void multiply_with_best(const MatrixView<T>& out, const MatrixView<const T>& a,
                        const MatrixView<const T>& b) {
  switch (capability()) {
    case Capability::avx512_bf16:
    case Capability::avx512:
      return multiply_avx512(out, a, b);
    case Capability::avx2:
      return multiply_avx2(out, a, b);
    case Capability::baseline:
      return multiply_baseline(out, a, b);
  }
}

}  // namespace

bool multiplies_pairs() { return capability() == Capability::avx512_bf16; }

void multiply(const MatrixView<float>& out, const MatrixView<const float>& a,
              const MatrixView<const float>& b) {
  multiply_with_best(out, a, b);
}
void multiply(const MatrixView<double>& out, const MatrixView<const double>& a,
              const MatrixView<const double>& b) {
  multiply_with_best(out, a, b);
}

}  // namespace gantry::kernels::host
