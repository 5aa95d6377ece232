#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Index faults]
// Indices are i32 or i64. An index out of range throws IndexError:
//  - for CPU tensors from the call itself: "gather: index 5 is out of bounds for dimension 0 with
//    size 3";
//  - for device tensors from the device's next synchronizing call or query: "gather on cuda:1:
//    index 5 …".
// A gather writes 0 for such an index; a scatter writes nothing.

// Which indices are in range.
enum class IndexRule : std::uint8_t {
  positive,  // 0 … size - 1
  wrapping,  // -size … size - 1; negative ones count from the end
  offsets,   // results of index_offsets: -1 is out of range, and already reported
};

// The operation that an error names, and the dim; -1: the one that is indexed.
struct IndexUse {
  const char* op;  // a literal
  IndexRule rule = IndexRule::positive;
  std::int32_t dim = -1;
  // The output is a new array of this call: a CPU kernel may have written a part of it when it
  // finds an index out of range.
  bool fills_new = false;
};

// The combination of an element and a value in a scatter.
enum class ScatterMode : std::uint8_t { replace, add, multiply, largest, smallest };

// out[.., k, ..] = in[.., index[k], ..] along `dim`. `index` is 1-D.
void index_select(const IndexUse& use, const Target& target, const TensorRef& out,
                  const TensorRef& in, int dim, const TensorRef& index);

// out[i][j] = in[index[i][j]][j] for dim 0; other dims likewise. `out` and `index` have one shape.
void gather(const IndexUse& use, const Target& target, const TensorRef& out, const TensorRef& in,
            int dim, const TensorRef& index);

// out[index[i][j]][j] = in[i][j] for dim 0; other dims likewise. Writes to one element are in
// increasing order of the position in `in`, on every platform.
void scatter(const IndexUse& use, const Target& target, const TensorRef& out, int dim,
             const TensorRef& index, const TensorRef& in, ScatterMode mode);

// out[.., index[k], ..] = in[.., k, ..] along `dim`, in increasing order of k. `index` is 1-D.
void index_scatter(const IndexUse& use, const Target& target, const TensorRef& out, int dim,
                   const TensorRef& index, const TensorRef& in, ScatterMode mode);

// The index of one dim as a part of an offset.
struct OffsetTerm {
  TensorRef index;  // broadcast to the output
  IndexUse use;
  std::int64_t size = 0;    // of the dim
  std::int64_t stride = 0;  // of the dim; the offset is the position times it
};

// out = the sum of one or two terms. `out` is i64. An index out of range makes it -1.
void index_offsets(const Target& target, const TensorRef& out, const OffsetTerm& first,
                   const OffsetTerm* second);

}  // namespace gantry::kernels
