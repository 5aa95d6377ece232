#pragma once

#include <cstdint>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/macros.hpp>

namespace gantry::kernels {

// The coalesced iteration space of an elementwise kernel's N operands. It has no dims of size 1.
// Its dims are in increasing order of the stride of operand 0, the output. Adjacent dims that are
// contiguous in every operand are merged. It has at least one dim.
//
// An operand may be an index instead of memory: its strides then enumerate indices.
template <int N>
struct StridedPlan {
  std::int32_t ndim = 0;
  std::int64_t numel = 1;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t strides[kMaxDims][N] = {};

  // True if operand k is contiguous.
  bool is_dense(int k) const { return ndim == 1 && strides[0][k] == 1; }
  // True if all strides of operand k are 0.
  bool is_constant(int k) const {
    for (int dim = 0; dim < ndim; ++dim) {
      if (strides[dim][k] != 0) return false;
    }
    return true;
  }
};

namespace detail {

// make_plan for any number of operands, with strides[dim * operands + k]. Returns the new ndim.
int coalesce(int operands, int ndim, std::int64_t* sizes, std::int64_t* strides);

}  // namespace detail

// Plans a loop over `sizes`. Operand k has the strides strides[k], in the order of `sizes`.
template <int N>
[[gnu::noinline]] StridedPlan<N> make_plan(int ndim, const std::int64_t* sizes,
                                           const std::int64_t* const (&strides)[N]) {
  StridedPlan<N> plan;
  for (int dim = 0; dim < ndim; ++dim) {
    plan.sizes[dim] = sizes[dim];
    plan.numel *= sizes[dim];
    for (int k = 0; k < N; ++k) plan.strides[dim][k] = strides[k][dim];
  }
  plan.ndim = detail::coalesce(N, ndim, plan.sizes, &plan.strides[0][0]);
  return plan;
}

// Division of numbers below 2^31 by an invariant divisor: one multiplication and a shift.
//
// Source: Granlund, Montgomery, "Division by invariant integers using multiplication" (PLDI 1994).
struct FastDivisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(std::uint32_t value) : divisor(value) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    const std::uint64_t power = std::uint64_t{1} << shift;
    multiplier = static_cast<std::uint32_t>(((power - value) << 32) / value + 1);
  }

  GANTRY_HD std::uint32_t divide(std::uint32_t n) const {
    const auto high =
        static_cast<std::uint32_t>((static_cast<std::uint64_t>(multiplier) * n) >> 32);
    return (high + n) >> shift;
  }
};

// Splits `plan` into pieces of fewer than 2^31 elements. Calls f(piece, offsets) for each; operand
// k begins at offsets[k].
template <int N, class F>
void for_each_piece(const StridedPlan<N>& plan, const F& f, const std::int64_t (&begin)[N]) {
  if (plan.numel < (std::int64_t{1} << 31)) {
    f(plan, begin);
    return;
  }
  int widest = 0;
  for (int dim = 1; dim < plan.ndim; ++dim) {
    if (plan.sizes[dim] > plan.sizes[widest]) widest = dim;
  }
  const std::int64_t half = plan.sizes[widest] / 2;
  const std::int64_t rest = plan.numel / plan.sizes[widest];
  StridedPlan<N> piece = plan;
  piece.sizes[widest] = half;
  piece.numel = half * rest;
  for_each_piece(piece, f, begin);
  piece.sizes[widest] = plan.sizes[widest] - half;
  piece.numel = piece.sizes[widest] * rest;
  std::int64_t middle[N];
  for (int k = 0; k < N; ++k) middle[k] = begin[k] + half * plan.strides[widest][k];
  for_each_piece(piece, f, middle);
}

// A part of a plan with fewer than 2^31 elements. Operand k begins at offsets[k].
template <int N>
struct PlanPiece {
  StridedPlan<N> plan;
  std::int64_t offsets[N];
};

// The pieces of for_each_piece, as a list.
template <int N>
[[gnu::noinline]] std::vector<PlanPiece<N>> pieces_of(const StridedPlan<N>& plan) {
  std::vector<PlanPiece<N>> pieces;
  const std::int64_t begin[N] = {};
  for_each_piece(
      plan,
      [&](const StridedPlan<N>& part, const std::int64_t(&offsets)[N]) {
        PlanPiece<N>& piece = pieces.emplace_back();
        piece.plan = part;
        for (int k = 0; k < N; ++k) piece.offsets[k] = offsets[k];
      },
      begin);
  return pieces;
}

}  // namespace gantry::kernels
