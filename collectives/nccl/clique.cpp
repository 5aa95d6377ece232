#include "collectives/nccl/clique.hpp"

#include <map>
#include <mutex>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/nccl/library.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/transport.hpp"
#include "memory/driver_memory.hpp"

namespace gantry {

namespace {

// Starting NCCL takes more than a second once. From this size on its ring is several times as fast
// as gantry's two-step transfer.
constexpr std::size_t kLeastBytes = std::size_t{8} << 20;

// The communicators of one device list. Never destroyed: ending NCCL from a static destructor is
// not safe.
struct Clique {
  std::vector<ncclComm_t> comms;
  // NCCL groups of one clique must not interleave between threads.
  std::mutex mutex;
};

Clique& clique_of(std::span<const Tensor> tensors) {
  static std::mutex mutex;
  static auto& cliques = *new std::map<std::vector<int>, Clique>;
  std::vector<int> devices;
  for (const Tensor& tensor : tensors) devices.push_back(tensor.device().index);
  const std::lock_guard lock(mutex);
  Clique& clique = cliques[devices];
  if (clique.comms.empty()) {
    prepare_nccl_environment();
    for (const int device : devices) memory::make_room(device, kNcclBytes);
    std::vector<ncclComm_t> comms(devices.size());
    check_nccl(nccl().comm_init_all(comms.data(), static_cast<int>(devices.size()), devices.data()),
               "ncclCommInitAll", "starting NCCL over this process's devices");
    clique.comms = std::move(comms);
  }
  return clique;
}

// Runs `call(i, comm, stream)` for every tensor inside one NCCL group.
template <class Call>
void grouped(std::span<const Tensor> tensors, Call call) {
  Clique& clique = clique_of(tensors);
  const std::lock_guard lock(clique.mutex);
  std::vector<cudaStream_t> streams;
  for (const Tensor& tensor : tensors) {
    streams.push_back(static_cast<cudaStream_t>(Stream::current(tensor.device()).native_handle()));
  }
  in_nccl_group("call in a group", "submitting to NCCL", nullptr, [&] {
    ncclResult_t failure = ncclSuccess;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const ncclResult_t status = call(i, clique.comms[i], streams[i]);
      if (failure == ncclSuccess) failure = status;
    }
    return failure;
  });
}

bool are_distinct(std::span<const Device> devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (devices[i] == devices[j]) return false;
    }
  }
  return true;
}

}  // namespace

bool wants_nccl(std::string_view operation, std::span<const Device> devices, std::size_t bytes,
                bool same_bits) {
  if (devices.size() < 2 || bytes == 0) return false;
  const CommChoice choice = comm_choice(operation);
  if (choice == CommChoice::p2p) return false;
  if (platform() != Platform::cuda) {
    warn_without_nccl(operation, "NCCL needs real GPUs");
    return false;
  }
  if (!are_distinct(devices)) {
    warn_without_nccl(operation, "NCCL needs devices of which none occurs twice");
    return false;
  }
  if (choice != CommChoice::nccl && !(same_bits && devices.size() > 2 && bytes >= kLeastBytes))
    return false;
  if (has_nccl()) return true;
  warn_without_nccl(operation, nccl_problem());
  return false;
}

void nccl_broadcast(std::span<const Tensor> tensors, int root) {
  grouped(tensors, [&](std::size_t i, ncclComm_t comm, cudaStream_t stream) {
    return nccl().broadcast(tensors[static_cast<std::size_t>(root)].data(), tensors[i].data(),
                            tensors[i].nbytes(), ncclUint8, root, comm, stream);
  });
}

void nccl_reduce(std::span<const Tensor> tensors, const Tensor& out, int root, ReduceOp op) {
  const DType dtype = tensors.front().dtype();
  const ncclDataType_t type = nccl_dtype(dtype);
  const ncclRedOp_t how = nccl_op(op, dtype);
  grouped(tensors, [&](std::size_t i, ncclComm_t comm, cudaStream_t stream) {
    return nccl().reduce(tensors[i].data(), out.data(),
                         static_cast<std::size_t>(tensors[i].numel()), type, how, root, comm,
                         stream);
  });
}

void nccl_all_reduce(std::span<const Tensor> tensors, ReduceOp op) {
  const DType dtype = tensors.front().dtype();
  const ncclDataType_t type = nccl_dtype(dtype);
  const ncclRedOp_t how = nccl_op(op, dtype);
  grouped(tensors, [&](std::size_t i, ncclComm_t comm, cudaStream_t stream) {
    return nccl().all_reduce(tensors[i].data(), tensors[i].data(),
                             static_cast<std::size_t>(tensors[i].numel()), type, how, comm, stream);
  });
}

}  // namespace gantry
