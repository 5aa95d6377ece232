#pragma once

#include <cstdint>
#include <span>

#include <gantry/core/dtype.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

enum class FoldOp : std::uint8_t { sum, prod, min, max, band, bor, bxor };

// Most inputs, and most outputs, of one fold.
inline constexpr int kMaxFoldInputs = 64;

// Element-wise left fold: out[i] = round(((in0[i] op in1[i]) op in2[i]) … / divisor), the inputs in
// the given order, all contiguous arrays of `count` elements of `dtype`, on the target's device or
// on peers with access enabled. f16 and bf16 are accumulated in f32 and rounded once; f32 and f64
// natively; integers wrap; bool sums as or, multiplies as and. `divisor` != 1 (avg) divides the
// accumulator of floating types. min and max propagate NaN, and -0 < +0. `out` may be one of the
// inputs. NaN results are canonical (0x7fc00000 and so on), so bits agree on every platform.
void fold(const Target& target, FoldOp op, void* out, std::span<const void* const> inputs,
          std::int64_t count, DType dtype, double divisor = 1);

// As above, with the result written to every one of `outs`, each of which may be one of the inputs.
void fold(const Target& target, FoldOp op, std::span<void* const> outs,
          std::span<const void* const> inputs, std::int64_t count, DType dtype, double divisor = 1);

// One of several folds of a launch.
struct FoldRun {
  void* out = nullptr;
  std::int64_t count = 0;
};

// Several folds of equally many inputs: run r folds inputs[r * n] to inputs[r * n + n - 1], where n
// is inputs.size() / runs.size(), as fold() does. One launch for hundreds of runs.
void fold_runs(const Target& target, FoldOp op, std::span<const FoldRun> runs,
               std::span<const void* const> inputs, DType dtype, double divisor = 1);

}  // namespace gantry::kernels
