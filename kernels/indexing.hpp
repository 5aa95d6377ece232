#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Index faults]
// Indices are i32 or i64. Negative indices are out of range. An index out of range throws
// IndexError:
//  - for CPU tensors from the call itself: "gather: index 5 is out of bounds for dimension 0 with
//    size 3";
//  - for device tensors from the device's next synchronizing call: "gather on cuda:1: index 5 …".
// A gather writes 0 for such an index; a scatter writes nothing.

// out[.., k, ..] = in[.., index[k], ..] along `dim`. `index` is 1-D.
void index_select(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
                  const TensorRef& index);

// out[i][j] = in[index[i][j]][j] for dim 0; other dims likewise. `out` and `index` have one shape.
void gather(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
            const TensorRef& index);

// out[index[i][j]][j] = in[i][j] for dim 0; other dims likewise. `accumulate` adds instead. Writes
// to one element are in increasing order of the position in `in`, on every platform.
void scatter(const Target& target, const TensorRef& out, int dim, const TensorRef& index,
             const TensorRef& in, bool accumulate);

}  // namespace gantry::kernels
