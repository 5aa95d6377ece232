#include "kernels/strided.hpp"

#include <algorithm>
#include <utility>

namespace gantry::kernels::detail {
namespace {

struct Dim {
  std::int64_t size;
  const std::int64_t* strides;
};

}  // namespace

int coalesce(int operands, int ndim, std::int64_t* sizes, std::int64_t* strides) {
  std::int64_t given[kMaxDims * 8];
  std::copy_n(strides, ndim * operands, given);

  Dim dims[kMaxDims];
  int count = 0;
  for (int dim = ndim - 1; dim >= 0; --dim) {
    if (sizes[dim] != 1) dims[count++] = {sizes[dim], given + dim * operands};
  }
  std::stable_sort(dims, dims + count,
                   [](const Dim& a, const Dim& b) { return a.strides[0] < b.strides[0]; });

  int kept = 0;
  for (int dim = 0; dim < count; ++dim) {
    std::int64_t* previous = strides + (kept - 1) * operands;
    bool merge = kept > 0;
    for (int k = 0; merge && k < operands; ++k) {
      merge = dims[dim].strides[k] == previous[k] * sizes[kept - 1];
    }
    if (merge) {
      sizes[kept - 1] *= dims[dim].size;
    } else {
      sizes[kept] = dims[dim].size;
      std::copy_n(dims[dim].strides, operands, strides + kept * operands);
      ++kept;
    }
  }
  if (kept == 0) {
    sizes[0] = 1;
    std::fill_n(strides, operands, 1);
    kept = 1;
  }
  return kept;
}

}  // namespace gantry::kernels::detail
