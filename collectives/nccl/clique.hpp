#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "collectives/reduction.hpp"

namespace gantry {

// NCCL between devices of this process. Communicators are made at the first use of a device list
// and cached. `wants_nccl` selects the calls of comm::* that use it.

// True if this call should use NCCL: with GANTRY_COLL_ALGO=nccl, or for sizes where NCCL's ring is
// faster and `same_bits`. Never on simulated devices, for repeated devices, or without NCCL, which
// this call loads if it is wanted. Warns if the user chose NCCL and it does not support
// `operation`.
bool wants_nccl(std::string_view operation, std::span<const Device> devices, std::size_t bytes,
                bool same_bits);

// Copies tensors[root] into all others: contiguous, one per device, equal sizes.
void nccl_broadcast(std::span<const Tensor> tensors, int root);

// Reduces contiguous tensors, one per device, onto tensors[root] (written to `out`).
void nccl_reduce(std::span<const Tensor> tensors, const Tensor& out, int root, ReduceOp op);

// Reduces contiguous tensors, one per device, in place on all.
void nccl_all_reduce(std::span<const Tensor> tensors, ReduceOp op);

}  // namespace gantry
