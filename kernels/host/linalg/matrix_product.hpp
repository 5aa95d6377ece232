#pragma once

#include <cstdint>

namespace gantry::kernels::host {

// A matrix whose rows, or columns if it is `transposed`, are contiguous and `stride` elements
// apart.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

// out = a b, on the calling thread. `out` is not transposed.
//
// The instructions are the processor's best ones, chosen at the first call. They decide the order
// of additions: results differ in the last bits from one kind of processor to another.
void multiply(const MatrixView<float>& out, const MatrixView<const float>& a,
              const MatrixView<const float>& b);
void multiply(const MatrixView<double>& out, const MatrixView<const double>& a,
              const MatrixView<const double>& b);

}  // namespace gantry::kernels::host
