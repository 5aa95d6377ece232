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

template <class T>
using Matrix = ::Eigen::Matrix<T, ::Eigen::Dynamic, ::Eigen::Dynamic, ::Eigen::RowMajor>;
template <class T, class M = Matrix<T>>
using MatrixMap = ::Eigen::Map<M, ::Eigen::Unaligned, ::Eigen::OuterStride<>>;

template <class T>
void eigen_product(const RowMajor<T>& out, const RowMajor<const T>& a, const RowMajor<const T>& b) {
  const MatrixMap<T, const Matrix<T>> left(a.data, a.rows, a.columns,
                                           ::Eigen::OuterStride<>(a.stride));
  const MatrixMap<T, const Matrix<T>> right(b.data, b.rows, b.columns,
                                            ::Eigen::OuterStride<>(b.stride));
  MatrixMap<T> product(out.data, out.rows, out.columns, ::Eigen::OuterStride<>(out.stride));
  product.noalias() = left * right;
}

}  // namespace

void GANTRY_PRODUCT(const RowMajor<float>& out, const RowMajor<const float>& a,
                    const RowMajor<const float>& b) {
  eigen_product(out, a, b);
}
void GANTRY_PRODUCT(const RowMajor<double>& out, const RowMajor<const double>& a,
                    const RowMajor<const double>& b) {
  eigen_product(out, a, b);
}

}  // namespace gantry::kernels::host
