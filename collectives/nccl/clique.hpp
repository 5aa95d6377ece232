#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "collectives/reduction.hpp"

namespace gantry {

// NCCL among devices of this process; communicators are made at the first use of a device list and
// kept. `wants_nccl` tells when comm::* takes it.

// True if NCCL knows the dtype and the op for it.
bool nccl_supports(ReduceOp op, DType dtype);

// True if this call should go through NCCL: GANTRY_COLL_ALGO=nccl, or bytes so large that NCCL's
// ring outruns ours and the result's bits are the same; never on simulated devices, for devices
// that occur twice, or in a build without NCCL.
// Where NCCL is asked for and cannot carry `operation`, it says so.
bool wants_nccl(std::string_view operation, std::span<const Device> devices, std::size_t bytes,
                bool same_bits);

// Copies tensors[root] into all others: contiguous, one per device, equal sizes.
void nccl_broadcast(std::span<const Tensor> tensors, int root);

// Reduces contiguous tensors, one per device, onto tensors[root] (written to `out`).
void nccl_reduce(std::span<const Tensor> tensors, const Tensor& out, int root, ReduceOp op);

// Reduces contiguous tensors, one per device, in place on all.
void nccl_all_reduce(std::span<const Tensor> tensors, ReduceOp op);

}  // namespace gantry
