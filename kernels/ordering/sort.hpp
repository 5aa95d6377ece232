#pragma once

#include <cstdint>
#include <string_view>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// The order of elements: Note [Element order]. `values` has in's dtype, `indices` is i64;
// a default TensorRef skips one of them. They have in's sizes except along `dim`.

// The longest fibre that sort and select_rank take on a GPU: positions have 32 bits.
inline constexpr std::int64_t kLongestSort = 0xffffffff;

// Throws NotSupported if fibres of `length` elements are too long for `target`. `op` is the
// operation's name.
void check_sort_length(std::string_view op, const Target& target, std::int64_t length);

// Writes the first elements of the order of each fibre along `dim`, as many as `values` has, and
// their indices. Equal elements keep their order.
void sort(const Target& target, const TensorRef& values, const TensorRef& indices,
          const TensorRef& in, int dim, bool descending);

// Writes the elements of `in`, 1-D, to `values`, contiguous, in ascending order. Equal elements
// keep their order, but NaNs are in any order.
void sort_values(const Target& target, const TensorRef& values, const TensorRef& in);

// Writes element `rank` of the ascending order of each fibre along `dim`, and its index. `ranks`,
// i64 with size 1 at `dim`, has one rank for each fibre; a default TensorRef means `rank`.
void select_rank(const Target& target, const TensorRef& values, const TensorRef& indices,
                 const TensorRef& in, int dim, std::int64_t rank, const TensorRef& ranks);

// Running maximum (or minimum) along `dim` and its index. NaN propagates. Of equal elements the
// last one counts.
void cumulative_extremum(const Target& target, bool largest, const TensorRef& values,
                         const TensorRef& indices, const TensorRef& in, int dim);

}  // namespace gantry::kernels
