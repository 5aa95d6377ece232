#include <algorithm>
#include <bit>

#include "kernels/impl/compact.inl"

namespace gantry::kernels::host {

void read_mask(const CompactionPlan& plan) {
  dispatch_word(plan.mask_bytes, [&](auto tag) {
    using W = typename decltype(tag)::type;
    dispatch_linear(plan, [&](auto linear) {
      std::int64_t sum = 0;
      for (std::int64_t first = 0; first < plan.numel; first += 64) {
        const std::int64_t end = std::min(first + 64, plan.numel);
        std::uint64_t bits = 0;
        for (std::int64_t i = first; i < end; ++i) {
          const bool is_set = is_selected<W, decltype(linear)::kLinear>(plan, i);
          bits |= std::uint64_t{is_set} << (i - first);
        }
        plan.bits[first / 64] = bits;
        sum += std::popcount(bits);
        plan.sums[first / kCompactionTile] = sum;
      }
    });
  });
}

void compact(const CompactionPlan& plan) {
  dispatch_compaction(plan, [&](auto kind, auto element) {
    using T = typename decltype(element)::type;
    dispatch_linear(plan, [&](auto linear) {
      constexpr bool kLinear = decltype(linear)::kLinear;
      std::int64_t rank = 0;
      for (std::int64_t first = 0; first < plan.numel; first += 64) {
        for (std::uint64_t bits = plan.bits[first / 64]; bits != 0; bits &= bits - 1) {
          const std::int64_t i = first + std::countr_zero(bits);
          compact_element<decltype(kind)::kKind, T, kLinear>(plan, i, rank);
          ++rank;
        }
      }
    });
  });
}

}  // namespace gantry::kernels::host
