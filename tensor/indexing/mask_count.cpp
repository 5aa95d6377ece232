#include "tensor/indexing/mask_count.hpp"

#include <gantry/tensor/factories.hpp>

#include "kernels/indexing/compaction.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

MaskCount count_mask(const Tensor& mask) {
  const std::int64_t size = kernels::selection_size(mask.numel());
  MaskCount result;
  result.selection = empty({size}, {.dtype = DType::i64, .device = mask.device()});
  if (size == 0) return result;
  kernels::read_mask(target_of(mask), result.selection.ref(), mask.ref());
  result.found = result.selection.select(0, size - 1).item<std::int64_t>();
  return result;
}

}  // namespace gantry::detail
