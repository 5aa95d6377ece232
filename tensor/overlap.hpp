#pragma once

#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// True if two positions of the tensor share memory. Exact for layouts that permute, slice and
// expand; other layouts (as_strided) are reported as overlapping unless their strides exclude it.
[[nodiscard]] bool has_internal_overlap(const Tensor& tensor);

// How two tensors share memory: not at all, in exactly the same layout, or otherwise.
enum class Overlap { none, full, partial };
[[nodiscard]] Overlap overlap_of(const Tensor& a, const Tensor& b);

// Throws InvalidArgument "unsupported operation: more than one element of the written-to tensor
// refers to a single memory location. Please clone() the tensor before performing the operation."
void check_writable(std::string_view op, const Tensor& out);
// Throws InvalidArgument "unsupported operation: some elements of the input tensor and the
// written-to tensor refer to a single memory location. Please clone() the tensor before performing
// the operation." if they overlap otherwise than in exactly the same layout.
void check_no_partial_overlap(std::string_view op, const Tensor& out, const Tensor& in);
// As above, but also the same layout is an error: for operations that read elements late.
void check_no_overlap(std::string_view op, const Tensor& out, const Tensor& in);

}  // namespace gantry::detail
