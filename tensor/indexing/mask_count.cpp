#include "tensor/indexing/mask_count.hpp"

#include <gantry/tensor/factories.hpp>

#include "kernels/indexing/compaction.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

MaskCount count_mask(const Tensor& mask) {
  const std::int64_t tiles = kernels::compaction_tiles(mask.numel());
  MaskCount result;
  result.tile_sums = empty({tiles}, {.dtype = DType::i64, .device = mask.device()});
  if (tiles == 0) return result;
  kernels::sum_tiles(target_of(mask), result.tile_sums.ref(), mask.ref());
  result.found = result.tile_sums.select(0, tiles - 1).item<std::int64_t>();
  return result;
}

}  // namespace gantry::detail
