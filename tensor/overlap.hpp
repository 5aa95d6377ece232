#pragma once

#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// True if two elements of the tensor share memory. Exact for permuted, sliced and expanded layouts.
// Other layouts (as_strided) count as overlapping unless their strides exclude it.
[[nodiscard]] bool has_internal_overlap(const Tensor& tensor);

// The overlap of two tensors: none, exactly the same layout, or partial.
enum class Overlap { none, full, partial };
[[nodiscard]] Overlap overlap_of(const Tensor& a, const Tensor& b);

// Throws InvalidArgument "unsupported operation: more than one element of the written-to tensor
// refers to a single memory location. Please clone() the tensor before performing the operation."
void check_writable(std::string_view op, const Tensor& out);
// Throws InvalidArgument "unsupported operation: some elements of the input tensor and the
// written-to tensor refer to a single memory location. Please clone() the tensor before performing
// the operation." if they overlap partially.
void check_no_partial_overlap(std::string_view op, const Tensor& out, const Tensor& in);
// The same, but rejects the same layout too: for operations that read elements after writes.
void check_no_overlap(std::string_view op, const Tensor& out, const Tensor& in);

}  // namespace gantry::detail
