// The product of matrices by Eigen, for the instructions that the file including this one is
// compiled for. GANTRY_PRODUCT names the function.
//
// Note [One library for several processors]
// A file compiled for newer instructions must not define functions that other files use: the linker
// keeps one copy, which may be the newer one. Such a file includes Eigen only, with its namespace
// renamed. check.instruction_sets checks its symbols.
#include <Eigen/Core>

#include "kernels/host/linalg/matrix_product.hpp"

namespace gantry::kernels::host {

namespace {

template <class T, int kOrder>
using Matrix = ::Eigen::Matrix<T, ::Eigen::Dynamic, ::Eigen::Dynamic, kOrder>;
template <class M>
using MatrixMap = ::Eigen::Map<M, ::Eigen::Unaligned, ::Eigen::OuterStride<>>;

// Calls f with a map of `matrix` in its order.
template <class T, class F>
void with_map(const MatrixView<const T>& matrix, const F& f) {
  const ::Eigen::OuterStride<> stride(matrix.stride);
  if (matrix.transposed) {
    using Columns = const Matrix<T, ::Eigen::ColMajor>;
    f(MatrixMap<Columns>(matrix.data, matrix.rows, matrix.columns, stride));
  } else {
    using Rows = const Matrix<T, ::Eigen::RowMajor>;
    f(MatrixMap<Rows>(matrix.data, matrix.rows, matrix.columns, stride));
  }
}

template <class T>
void eigen_product(const MatrixView<T>& out, const MatrixView<const T>& a,
                   const MatrixView<const T>& b) {
  MatrixMap<Matrix<T, ::Eigen::RowMajor>> product(out.data, out.rows, out.columns,
                                                  ::Eigen::OuterStride<>(out.stride));
  with_map(a, [&](const auto& left) {
    with_map(b, [&](const auto& right) { product.noalias() = left * right; });
  });
}

}  // namespace

void GANTRY_PRODUCT(const MatrixView<float>& out, const MatrixView<const float>& a,
                    const MatrixView<const float>& b) {
  eigen_product(out, a, b);
}
void GANTRY_PRODUCT(const MatrixView<double>& out, const MatrixView<const double>& a,
                    const MatrixView<const double>& b) {
  eigen_product(out, a, b);
}

}  // namespace gantry::kernels::host
