// Dispatch of the passes of Note [Compaction], shared by the host and the GPU.
#pragma once

#include "kernels/indexing/compaction_plan.hpp"
#include "kernels/input.hpp"

namespace gantry::kernels {

template <CompactionKind kValue>
struct CompactionTag {
  static constexpr CompactionKind kKind = kValue;
};

template <bool kValue>
struct LinearTag {
  static constexpr bool kLinear = kValue;
};

// Calls f(LinearTag): whether all indices of the plan have at most one dim.
template <class F>
void dispatch_linear(const CompactionPlan& plan, const F& f) {
  if (plan.mask_index.ndim <= 1 && plan.places.ndim <= 1) {
    f(LinearTag<true>{});
  } else {
    f(LinearTag<false>{});
  }
}

// Calls f(TypeTag<word>) for the unsigned word of `bytes` bytes.
template <class F>
void dispatch_word(int bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    case 8:
      return f(TypeTag<std::uint64_t>{});
  }
  __builtin_unreachable();
}

// Calls f(CompactionTag<kind>, TypeTag<element word>).
template <class F>
void dispatch_compaction(const CompactionPlan& plan, const F& f) {
  switch (plan.kind) {
    case CompactionKind::coordinates:
      return f(CompactionTag<CompactionKind::coordinates>{}, TypeTag<std::int64_t>{});
    case CompactionKind::offsets:
      return f(CompactionTag<CompactionKind::offsets>{}, TypeTag<std::int64_t>{});
    case CompactionKind::pack:
      return dispatch_word(plan.element_bytes, [&](auto element) {
        f(CompactionTag<CompactionKind::pack>{}, element);
      });
    case CompactionKind::unpack:
      return dispatch_word(plan.element_bytes, [&](auto element) {
        f(CompactionTag<CompactionKind::unpack>{}, element);
      });
  }
}

}  // namespace gantry::kernels
