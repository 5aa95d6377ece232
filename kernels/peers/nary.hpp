#pragma once

#include <cstdint>
#include <span>

#include <gantry/core/dtype.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// min_unsigned and max_unsigned compare signed words of 16, 32 or 64 bits as unsigned ones. Kernels
// use them for min and max of u16, u32 and u64.
enum class NaryOp : std::uint8_t {
  sum,
  prod,
  min,
  max,
  band,
  bor,
  bxor,
  min_unsigned,
  max_unsigned
};

// The largest number of inputs, and of outputs.
inline constexpr int kMaxNaryInputs = 64;

// N-ary elementwise operation: out[i] = round(((in0[i] op in1[i]) op in2[i]) … / divisor).
//
// The inputs are combined in the given order: this is the local step of a rank-ordered reduction.
// All arrays are contiguous, have `count` elements of `dtype`, and are on the target's device or on
// peers with access enabled. `out` may be one of the inputs.
//
// f16, bf16, f8e4m3 and f8e5m2 accumulate in f32 and round once. Integers wrap. For bool, sum is
// or, and prod is and. min and max propagate NaN, and -0 < +0. NaN results are canonical (Note
// [Canonical NaN]). A floating accumulator is divided by `divisor`, which is the number of inputs
// for an average.
void nary(const Target& target, NaryOp op, void* out, std::span<const void* const> inputs,
          std::int64_t count, DType dtype, double divisor = 1);

// The same, but writes the result to each of `outs`. Each may be one of the inputs.
void nary(const Target& target, NaryOp op, std::span<void* const> outs,
          std::span<const void* const> inputs, std::int64_t count, DType dtype, double divisor = 1);

// One operation of nary_batched.
struct NaryItem {
  void* out = nullptr;
  std::int64_t count = 0;
};

// Several nary() operations in one launch for hundreds of items. Each item has n = inputs.size() /
// items.size() inputs: item r has inputs[r * n] to inputs[r * n + n - 1].
void nary_batched(const Target& target, NaryOp op, std::span<const NaryItem> items,
                  std::span<const void* const> inputs, DType dtype, double divisor = 1);

}  // namespace gantry::kernels
