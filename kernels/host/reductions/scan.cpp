#include "kernels/impl/scan.inl"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/lanes.hpp"
#include "kernels/host/reductions/scan_columns.hpp"

namespace gantry::kernels::host {

namespace {

// Vectors of four: one element each of four groups.
using FloatLanes = ShortVector<float>::Type;
typedef float EightLanes __attribute__((vector_size(32)));
typedef double Lanes __attribute__((vector_size(32), may_alias));

template <ScanOp kOp>
void combine_lanes(Lanes& a, const Lanes& b) {
  if constexpr (kOp == ScanOp::product) {
    a = a * b;
  } else {
    a = a + b;
  }
}

constexpr int kBatch = 4 * kScanGroup;
constexpr int kBatches = kScanGroup / 4;

// Elements of a batch in the order of Lanes: element i of each of four groups, for every i.
inline void load_batch(float* to, const float* in) {
#pragma GCC unroll 4
  for (int i = 0; i < kScanGroup; i += 4) {
    FloatLanes m[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) std::memcpy(&m[k], in + k * kScanGroup + i, sizeof m[k]);
    transpose_lanes<float>(m);
    // Stored as they are loaded next, or the processor waits for the stores.
    const EightLanes pairs[2] = {__builtin_shufflevector(m[0], m[1], 0, 1, 2, 3, 4, 5, 6, 7),
                                 __builtin_shufflevector(m[2], m[3], 0, 1, 2, 3, 4, 5, 6, 7)};
    std::memcpy(to + i * 4, pairs, sizeof pairs);
  }
}
inline void store_batch(float* out, const float* from) {
#pragma GCC unroll 4
  for (int i = 0; i < kScanGroup; i += 4) {
    FloatLanes m[4];
    std::memcpy(m, from + i * 4, sizeof m);
    transpose_lanes<float>(m);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) std::memcpy(out + k * kScanGroup + i, &m[k], sizeof m[k]);
  }
}

// The state of the results so far: Note [Restarted scans].
template <class Acc>
struct ScanState {
  Acc last;  // the last result, not rounded
  bool fails = false;

  void add(Acc result) {
    last = result;
    fails = fails || !is_finite(result);
  }
};

// Scans kBatches batches, which come one after the other and are a group of groups, the unit of
// `carry`.
//
// Conversions are loops over arrays, of which compilers make better code than of vectors. Each step
// is a loop over batches: they overlap within a step, as one batch has too many instructions to
// overlap with the next.
template <ScanOp kOp>
void scan_batches(float* out, const float* in, ScanCarry<ScanStep<double, kOp>>& carry,
                  ScanState<double>& state) {
  using Step = ScanStep<double, kOp>;
  constexpr int kElements = kBatches * kBatch;
  alignas(32) float elements[kElements];
  for (int i = 0; i < kElements; i += kBatch) load_batch(elements + i, in + i);
  Lanes running[kBatches][kScanGroup];
  auto* values = reinterpret_cast<double*>(running);
  for (int i = 0; i < kElements; ++i) values[i] = elements[i];
  for (int i = 1; i < kScanGroup; ++i) {
#pragma GCC unroll 4
    for (int batch = 0; batch < kBatches; ++batch) {
      combine_lanes<kOp>(running[batch][i], running[batch][i - 1]);
    }
  }
  double before[kBatches][4];
  const double above = carry.before();
  double groups = Step::neutral();
  for (int batch = 0; batch < kBatches; ++batch) {
    for (int group = 0; group < 4; ++group) {
      before[batch][group] = Step::combine(above, groups);
      groups = Step::combine(groups, running[batch][kScanGroup - 1][group]);
    }
  }
  carry.push(groups);
  for (int batch = 0; batch < kBatches; ++batch) {
    const Lanes added = {before[batch][0], before[batch][1], before[batch][2], before[batch][3]};
    for (int i = 0; i < kScanGroup; ++i) combine_lanes<kOp>(running[batch][i], added);
  }
  unsigned fails = 0;
  for (int i = 0; i < kElements; ++i) {
    const auto rounded = static_cast<float>(values[i]);
    elements[i] = rounded == rounded ? rounded : std::bit_cast<float>(0x7fc00000u);
    if constexpr (kBeginsAgain<float, kOp>) fails |= rounded - rounded == 0 ? 0u : 1u;
  }
  if (fails != 0) state.fails = true;
  for (int i = 0; i < kElements; i += kBatch) store_batch(out + i, elements + i);
}

// Scans `length` elements after the elements of `carry`, whose units are groups of groups. Rounds
// each element of the result; the accumulator itself is never rounded.
template <ScanOp kOp, class In, class Carry>
void scan_elements(ScanOut<In>* out, std::int64_t out_stride, const In* in, std::int64_t in_stride,
                   std::int64_t length, Carry& carry, ScanState<ScanAccumulator<In>>& state) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  auto groups = Step::neutral();
  int group = 0;
  [[maybe_unused]] unsigned fails = 0;
  for (std::int64_t first = 0; first < length; first += kScanGroup) {
    const std::int64_t rest = length - first;
    const int count = static_cast<int>(rest < kScanGroup ? rest : kScanGroup);
    const auto before = Step::combine(carry.before(), groups);
    auto running = Step::neutral();
    for (int i = 0; i < count; ++i) {
      running = Step::combine(running, static_cast<typename Step::Acc>(in[i * in_stride]));
      const auto result = from_accumulator<ScanOut<In>>(Step::combine(before, running));
      out[i * out_stride] = result;
      if constexpr (kBeginsAgain<In, kOp>) fails |= static_cast<unsigned>(!is_finite(result));
    }
    if constexpr (kRestarts<In, kOp> && !kBeginsAgain<In, kOp>)
      state.add(Step::combine(before, running));
    in += count * in_stride;
    out += count * out_stride;
    groups = Step::combine(groups, running);
    if (++group == kScanGroup) {
      carry.push(groups);
      groups = Step::neutral();
      group = 0;
    }
  }
  if constexpr (kBeginsAgain<In, kOp>) state.fails = state.fails || fails != 0;
}

// Scans a part of a fibre, which begins with a unit of `carry` and ends with one or the fibre.
template <ScanOp kOp, class In, class Carry>
void scan_part(ScanOut<In>* out, std::int64_t out_stride, const In* in, std::int64_t in_stride,
               std::int64_t length, Carry& carry, ScanState<ScanAccumulator<In>>& state) {
  std::int64_t done = 0;
  if constexpr (std::is_same_v<In, float> && kOp != ScanOp::log_sum_exp) {
    constexpr std::int64_t kStep = kBatches * kBatch;
    if (in_stride == 1 && out_stride == 1) done = length - length % kStep;
    with_fma([=, &carry, &state] {
      for (std::int64_t i = 0; i < done; i += kStep) {
        scan_batches<kOp>(out + i, in + i, carry, state);
      }
    });
  }
  scan_elements<kOp>(out + done * out_stride, out_stride, in + done * in_stride, in_stride,
                     length - done, carry, state);
}

// Integers wrap, so their sums and products are the same in any order.
template <ScanOp kOp, class In>
void scan_integers(ScanOut<In>* out, std::int64_t out_stride, const In* in, std::int64_t in_stride,
                   std::int64_t length) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  auto running = Step::neutral();
  for (std::int64_t i = 0; i < length; ++i) {
    running = Step::combine(running, static_cast<typename Step::Acc>(in[i * in_stride]));
    out[i * out_stride] = from_accumulator<ScanOut<In>>(running);
  }
}

template <ScanOp kOp, class In>
void scan_fibre(const FibrePlan& plan, std::int64_t fibre) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  const std::int64_t in_stride = plan.in.stride;
  const std::int64_t out_stride = plan.out.stride;
  const std::int64_t part = kRestarts<In, kOp> ? kScanTile : plan.length;
  auto* out = static_cast<ScanOut<In>*>(plan.out.data) + plan.out.outer.offset(fibre);
  const auto* in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre);
  if constexpr (!is_floating_point(dtype_of<In>)) {
    return scan_integers<kOp>(out, out_stride, in, in_stride, plan.length);
  }
  ScanCarry<Step> carry;
  ScanState<ScanAccumulator<In>> state{Step::neutral()};
  for (std::int64_t first = 0; first < plan.length; first += part) {
    const std::int64_t restart = kBeginsAgain<In, kOp> ? 0 : first;
    const auto before = kBeginsAgain<In, kOp> ? Step::neutral() : state.last;
    scan_part<kOp>(out + first * out_stride, out_stride, in + first * in_stride, in_stride,
                   std::min(part, plan.length - first), carry, state);
    if (!state.fails) continue;
    scan_left_to_right<Step>(out + restart * out_stride, out_stride, in + restart * in_stride,
                             in_stride, plan.length - restart, before);
    break;
  }
}

// Contiguous fibres of at most one group, `rows` of them from fibre `first` on: too short for
// tiles. The order of one group is from left to right, in which failing scans begin again.
template <ScanOp kOp, class In>
void scan_single_groups(const FibrePlan& plan, std::int64_t first, std::int64_t rows) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  const auto* const in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(first);
  auto* const out = static_cast<ScanOut<In>*>(plan.out.data) + plan.out.outer.offset(first);
  const std::int64_t in_spacing = plan.in.outer.strides[plan.in.outer.ndim - 1];
  const std::int64_t out_spacing = plan.out.outer.strides[plan.out.outer.ndim - 1];
  const std::int64_t length = plan.length;
  with_fma([=] {
    for (std::int64_t row = 0; row < rows; ++row) {
      const In* const from = in + row * in_spacing;
      ScanOut<In>* const to = out + row * out_spacing;
      auto running = Step::neutral();
      for (std::int64_t i = 0; i < length; ++i) {
        running = Step::combine(running, static_cast<typename Step::Acc>(from[i]));
        to[i] = from_accumulator<ScanOut<In>>(running);
      }
    }
  });
}

template <ScanOp kOp, class In>
void scan_fibres(const FibrePlan& plan) {
  const bool side_by_side = has_columns(plan);
  const bool transposed =
      !side_by_side && is_floating_point(dtype_of<In>) && has_short_fibres(plan, kShortScan);
  const auto scratch = static_cast<std::size_t>(transposed ? plan.length * kScanColumns : 0);
  std::vector<WordOf<In>> in(scratch);
  std::vector<WordOf<ScanOut<In>>> out(scratch);
  for (std::int64_t fibre = 0; fibre < plan.count;) {
    int count = 1;
    bool is_done = false;
    if constexpr (kOp != ScanOp::log_sum_exp) {
      if (side_by_side || transposed) count = neighbours(plan, fibre);
      if (side_by_side) {
        is_done = scan_columns<kOp, In>(
            {static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre), plan.in.stride,
             static_cast<ScanOut<In>*>(plan.out.data) + plan.out.outer.offset(fibre),
             plan.out.stride, count},
            plan.length);
      } else if (transposed && plan.length <= kScanGroup) {
        scan_single_groups<kOp, In>(plan, fibre, count);
        is_done = true;
      } else if (transposed) {
        is_done = scan_short_fibres<kOp, In>(plan, fibre, count, reinterpret_cast<In*>(in.data()),
                                             reinterpret_cast<ScanOut<In>*>(out.data()));
      }
    }
    for (int i = 0; i < count && !is_done; ++i) scan_fibre<kOp, In>(plan, fibre + i);
    fibre += count;
  }
}

}  // namespace

void scan(ScanOp op, const FibrePlan& fibres) {
  const FibrePlan plan = with_merged_dims(fibres);
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (plan.length == 0) return;
    if (op == ScanOp::sum) scan_fibres<ScanOp::sum, In>(plan);
    if (op == ScanOp::product) scan_fibres<ScanOp::product, In>(plan);
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (op == ScanOp::log_sum_exp) scan_fibres<ScanOp::log_sum_exp, In>(plan);
    }
  });
}

}  // namespace gantry::kernels::host
