#pragma once

#include <cstdint>

namespace gantry::kernels::host {

// A row-major matrix whose rows are `stride` elements apart.
template <class T>
struct RowMajor {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

// out = a b, on the calling thread.
//
// The instructions are the processor's best ones, chosen at the first call. They decide the order
// of additions: results differ in the last bits from one kind of processor to another.
void multiply(const RowMajor<float>& out, const RowMajor<const float>& a,
              const RowMajor<const float>& b);
void multiply(const RowMajor<double>& out, const RowMajor<const double>& a,
              const RowMajor<const double>& b);

}  // namespace gantry::kernels::host
