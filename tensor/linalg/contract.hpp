#pragma once

#include <vector>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// A tensor whose dims have labels, all different.
struct LabelledTensor {
  Tensor tensor;
  std::vector<int> labels;
};

// The sum over the labels that `is_kept` lacks, which is indexed by label. A dim of size 1 goes
// without a sum.
[[nodiscard]] LabelledTensor sum_out_labels(const LabelledTensor& operand,
                                            const std::vector<bool>& is_kept);

// The product of a and b, summed over the labels that `is_kept` lacks. Equal labels have equal
// sizes, or one of size 1. The result's labels: those of both that are kept, of a alone, of b
// alone.
[[nodiscard]] LabelledTensor contract(const LabelledTensor& a, const LabelledTensor& b,
                                      const std::vector<bool>& is_kept);

// `operand` with its dims in the order of `labels`, which are its labels and others. Those others
// become dims of size 1.
[[nodiscard]] Tensor ordered_by(const LabelledTensor& operand, const std::vector<int>& labels);

}  // namespace gantry::detail
