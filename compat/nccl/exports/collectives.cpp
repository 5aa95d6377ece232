// Exported: collectives, messages, groups and operators.
#include <cstring>
#include <memory>

#include <gantry/core/error.hpp>

#include "compat/nccl/fallback.hpp"
#include "compat/nccl/group.hpp"
#include "compat/nccl/outcome.hpp"
#include "compat/nccl/rank.hpp"
#include "compat/nccl/types/data_type.hpp"

namespace gantry::nccl_api {

namespace {

ncclResult_t submit(Tally& tally, ncclComm_t comm, const Operation& operation) noexcept {
  return collected(tally, [&] {
    if (CallGroup::mine().submit(rank_of(comm), operation)) tally.count_theirs();
    tally.add_bytes(operation.count * element_bytes(operation.type));
    return ncclSuccess;
  });
}

}  // namespace

GANTRY_NCCL_API ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count,
                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclAllReduce");
  return submit(tally, comm,
                {.kind = OperationKind::all_reduce,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .op = op,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count,
                                        ncclDataType_t type, ncclRedOp_t op, int root,
                                        ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclReduce");
  return submit(tally, comm,
                {.kind = OperationKind::reduce,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .op = op,
                 .peer = root,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count,
                                           ncclDataType_t type, int root, ncclComm_t comm,
                                           cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclBroadcast");
  return submit(tally, comm,
                {.kind = OperationKind::broadcast,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .peer = root,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclBcast(void* data, std::size_t count, ncclDataType_t type, int root,
                                       ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclBcast");
  return submit(tally, comm,
                {.kind = OperationKind::broadcast,
                 .send = data,
                 .recv = data,
                 .count = count,
                 .type = type,
                 .peer = root,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count,
                                           ncclDataType_t type, ncclComm_t comm,
                                           cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclAllGather");
  return submit(tally, comm,
                {.kind = OperationKind::all_gather,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count,
                                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclReduceScatter");
  return submit(tally, comm,
                {.kind = OperationKind::reduce_scatter,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .op = op,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclGather(const void* send, void* recv, std::size_t count,
                                        ncclDataType_t type, int root, ncclComm_t comm,
                                        cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclGather");
  return submit(tally, comm,
                {.kind = OperationKind::gather,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .peer = root,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclScatter(const void* send, void* recv, std::size_t count,
                                         ncclDataType_t type, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclScatter");
  return submit(tally, comm,
                {.kind = OperationKind::scatter,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .peer = root,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count,
                                          ncclDataType_t type, ncclComm_t comm,
                                          cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclAlltoAll");
  return submit(tally, comm,
                {.kind = OperationKind::all_to_all,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type,
                                      int peer, ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclSend");
  return submit(tally, comm,
                {.kind = OperationKind::send,
                 .send = send,
                 .count = count,
                 .type = type,
                 .peer = peer,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer,
                                      ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclRecv");
  return submit(tally, comm,
                {.kind = OperationKind::recv,
                 .recv = recv,
                 .count = count,
                 .type = type,
                 .peer = peer,
                 .stream = stream});
}

GANTRY_NCCL_API ncclResult_t ncclGroupStart() {
  GANTRY_NCCL_TALLY("ncclGroupStart");
  return guarded(tally, [] {
    CallGroup::mine().start();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclGroupEnd() {
  GANTRY_NCCL_TALLY("ncclGroupEnd");
  return guarded(tally, [] {
    CallGroup::mine().end();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* /*info*/) {
  return refuse("ncclGroupSimulateEnd", "gantry does not estimate the time of a group");
}

GANTRY_NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                      ncclDataType_t type,
                                                      ncclScalarResidence_t residence,
                                                      ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclRedOpCreatePreMulSum");
  return guarded(tally, [&] {
    if (op == nullptr || scalar == nullptr) {
      throw InvalidArgument("expected a place for the operator, and a factor, but got null");
    }
    const std::shared_ptr<Rank> rank = rank_of(comm);
    if (ncclComm_t const theirs = rank->theirs()) {
      *op = theirs::add_operator(theirs, type, scalar, residence);
      return ncclSuccess;
    }
    PreMulSum made{.type = type, .factor = {}};
    const std::size_t bytes = element_bytes(type);
    if (residence == ncclScalarDevice) {
      made.factor.on_device = scalar;
    } else {
      std::memcpy(&made.factor.bits, scalar, bytes);
    }
    *op = rank->add_operator(made);
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclRedOpDestroy");
  return guarded(tally, [&] {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    if (ncclComm_t const theirs = rank->theirs()) {
      theirs::remove_operator(theirs, op);
    } else {
      rank->remove_operator(op);
    }
    return ncclSuccess;
  });
}

}  // namespace gantry::nccl_api
