// One operation of NCCL's interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <gantry/tensor/tensor.hpp>

#include "compat/nccl/rank.hpp"
#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

enum class OperationKind {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
};

// The arguments of a call. `count` is the call's own: elements of the larger or the smaller array,
// as the function has it.
struct Operation {
  OperationKind kind;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;  // root, destination or source
  void* stream = nullptr;
  std::optional<PreMulSum> factor = {};  // see checked()

  [[nodiscard]] bool is_message() const {
    return kind == OperationKind::send || kind == OperationKind::recv;
  }
};

// Returns `operation` with the factor of its operator, which the program may destroy afterwards.
// Throws InvalidArgument for arguments that no call has. Enqueues nothing.
Operation checked(const Rank& rank, Operation operation);

// The program's arrays of a call. Undefined where the call has none on this rank. See HostArrays
// for memory of the host.
struct Arrays {
  Tensor send;
  Tensor recv;
};

// Throws InvalidArgument for memory that is neither of the rank's device nor page-locked. Calls
// that do not run now need it: their errors belong to the call.
Arrays arrays_of(const Rank& rank, const Operation& operation);

}  // namespace gantry::nccl_api
