#include <algorithm>

#include "kernels/impl/compact.inl"

namespace gantry::kernels::host {

void sum_tiles(const CompactionPlan& plan) {
  dispatch_mask_word(plan.mask_bytes, [&](auto tag) {
    using W = typename decltype(tag)::type;
    dispatch_linear(plan, [&](auto linear) {
      std::int64_t sum = 0;
      for (std::int64_t tile = 0; tile < compaction_tiles(plan.numel); ++tile) {
        const std::int64_t first = tile * kCompactionTile;
        const std::int64_t end = std::min(first + kCompactionTile, plan.numel);
        for (std::int64_t i = first; i < end; ++i) {
          sum += is_selected<W, decltype(linear)::kLinear>(plan, i) ? 1 : 0;
        }
        plan.sums[tile] = sum;
      }
    });
  });
}

void compact(const CompactionPlan& plan) {
  dispatch_compaction(plan, [&](auto word, auto kind, auto element) {
    using W = typename decltype(word)::type;
    using T = typename decltype(element)::type;
    dispatch_linear(plan, [&](auto linear) {
      constexpr bool kLinear = decltype(linear)::kLinear;
      std::int64_t rank = 0;
      for (std::int64_t i = 0; i < plan.numel; ++i) {
        if (!is_selected<W, kLinear>(plan, i)) continue;
        compact_element<decltype(kind)::kKind, T, kLinear>(plan, i, rank);
        ++rank;
      }
    });
  });
}

}  // namespace gantry::kernels::host
