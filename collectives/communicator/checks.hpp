#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// Argument checks of Communicator's operations; for the errors see communicator.hpp.
void require_tensor(const Tensor& tensor, Device device, std::string_view op,
                    std::string_view argument);
// Requires that the elements of an output do not overlap.
void require_writable(const Tensor& tensor, std::string_view op, std::string_view argument);
// The checks that all operations with an input and an output on this rank share.
void require_pair(const Tensor& output, const Tensor& input, Device device, std::string_view op);
// True for two tensors of the same elements in the same order.
bool is_same_array(const Tensor& a, const Tensor& b);
void require_same_shape(const Tensor& output, const Tensor& input, std::string_view op);
void require_same_dtype(const Tensor& output, const Tensor& input, std::string_view op);
// Requires that `large` (named `argument`) has `ranks` times the rows of `small`, or stacks `ranks`
// tensors of its shape.
void require_joined(const Tensor& large, const Tensor& small, int ranks, std::string_view op,
                    std::string_view argument);
void require_root(int root, int size, std::string_view op);
void require_peer(int peer, int rank, int size, std::string_view op);
// `argument` may be empty.
void require_rank(int rank, int size, std::string_view op, std::string_view argument = {});
// Requires one count per rank, not negative, with the sum of the tensor's rows. `list` is the name
// of the argument that has the counts; empty: the program gives none.
void require_row_counts(std::span<const std::int64_t> rows, const Tensor& tensor, int ranks,
                        std::string_view op, std::string_view argument, std::string_view list);
// Requires that both tensors have rows of one shape.
void require_same_row_shape(const Tensor& output, const Tensor& input, std::string_view op);
// Requires that the dtype supports the op and the scale.
void require_reducible(ReduceOp op, DType dtype, const CollectiveOptions& options,
                       std::string_view where);

}  // namespace gantry
