#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// Each throws for what `op` was not meant to be called with; see communicator.hpp.
void require_tensor(const Tensor& tensor, Device device, std::string_view op,
                    std::string_view argument);
// A result can only be written where each element has a place of its own.
void require_writable(const Tensor& tensor, std::string_view op, std::string_view argument);
void require_same_dtype(const Tensor& output, const Tensor& input, std::string_view op);
// `large`, which is `argument`, has `ranks` times the rows of `small`, or is as many of its shape
// stacked.
void require_joined(const Tensor& large, const Tensor& small, int ranks, std::string_view op,
                    std::string_view argument);
void require_root(int root, int size, std::string_view op);
void require_peer(int peer, int rank, int size, std::string_view op);
// One number of rows for every rank, none negative, that add up to those of `tensor`.
void require_row_counts(std::span<const std::int64_t> rows, const Tensor& tensor, int ranks,
                        std::string_view op, std::string_view argument);
// Rows of one tensor are rows of the other.
void require_same_row_shape(const Tensor& output, const Tensor& input, std::string_view op);
// The op exists for the dtype, and the scale for both.
void require_reducible(ReduceOp op, DType dtype, const CollectiveOptions& options,
                       std::string_view where);

}  // namespace gantry
