#include "kernels/strided.hpp"

#include <algorithm>
#include <utility>

namespace gantry::kernels::detail {
namespace {

struct Dim {
  std::int64_t size;
  const std::int64_t* strides;
};

// The number of elements, if all operands are contiguous; else 0.
std::int64_t contiguous_numel(int operands, int ndim, const std::int64_t* sizes,
                              const std::int64_t* strides) {
  std::int64_t numel = 1;
  for (int dim = ndim - 1; dim >= 0; --dim) {
    for (int k = 0; sizes[dim] != 1 && k < operands; ++k) {
      if (strides[dim * operands + k] != numel) return 0;
    }
    numel *= sizes[dim];
  }
  return numel;
}

}  // namespace

int coalesce(int operands, int ndim, std::int64_t* sizes, std::int64_t* strides) {
  if (const std::int64_t numel = contiguous_numel(operands, ndim, sizes, strides); numel > 0) {
    sizes[0] = numel;
    std::fill_n(strides, operands, 1);
    return 1;
  }
  std::int64_t given[kMaxDims * 8];
  std::copy_n(strides, ndim * operands, given);

  Dim dims[kMaxDims];
  int count = 0;
  for (int dim = ndim - 1; dim >= 0; --dim) {
    if (sizes[dim] != 1) dims[count++] = {sizes[dim], given + dim * operands};
  }
  for (int dim = 1; dim < count; ++dim) {  // std::stable_sort allocates
    for (int at = dim; at > 0 && dims[at].strides[0] < dims[at - 1].strides[0]; --at) {
      std::swap(dims[at], dims[at - 1]);
    }
  }

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
