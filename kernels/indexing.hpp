#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Index faults]
// Indices are i32 or i64. One that is out of range, as negative ones are, is reported as IndexError
// "gather: index 5 is out of bounds for dimension 0 with size 3" at once for CPU tensors, else as
// "gather on cuda:1: index 5 …" at the device's next synchronizing call; its element is left
// unwritten (gathers write 0).

// out[.., k, ..] = in[.., index[k], ..] along `dim`; index is 1-D.
void index_select(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
                  const TensorRef& index);

// out[i][j] = in[index[i][j]][j] for dim 0, and so on; out and index have one shape.
void gather(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
            const TensorRef& index);

// out[index[i][j]][j] = in[i][j] for dim 0, and so on; with `accumulate`, adds (order of duplicates
// is that of increasing position in `in`, on every platform).
void scatter(const Target& target, const TensorRef& out, int dim, const TensorRef& index,
             const TensorRef& in, bool accumulate);

}  // namespace gantry::kernels
