#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>

#include "collectives/control/block.hpp"
#include "collectives/nccl/check.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/transport.hpp"

namespace gantry {

namespace {

cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Membership& membership, Bootstrap& bootstrap, ControlBlock* control)
      : rank_(membership.rank),
        size_(membership.size),
        device_(membership.device),
        control_(control) {
    prepare_nccl_environment();
    barrier_word_ = driver().allocate(device_.index, sizeof(std::int32_t));
    if (barrier_word_ == nullptr) {
      throw OutOfMemoryError("Failed allocating the barrier's word of 4 bytes", {}, device_.str());
    }
    ncclUniqueId id{};
    if (membership.rank == 0) {
      GANTRY_NCCL_CHECK(ncclGetUniqueId(&id), "making an NCCL id");
    }
    const std::string text(reinterpret_cast<const char*>(&id), sizeof id);
    const std::vector<std::string> all = bootstrap.all_gather(text);
    std::memcpy(&id, all.at(0).data(), sizeof id);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(ncclCommInitRank(&comm_, membership.size, id, membership.rank),
                      "starting NCCL");
  }

  ~NcclTransport() override {
    // Abort, not destroy: destroy waits for peers that may be gone.
    if (const ncclResult_t status = ncclCommAbort(comm_); status != ncclSuccess) {
      logging::warn(std::string("ending NCCL: ") + ncclGetErrorString(status));
    }
  }

  std::string_view name() const override { return "nccl"; }

  bool supports(const Descriptor& what) const override {
    if (!reduces(what.kind)) return true;
    const bool rounds =
        is_floating_point(what.dtype) &&
        (what.op == ReduceOp::sum || what.op == ReduceOp::prod || what.op == ReduceOp::avg);
    // NCCL's order of summation depends on size and algorithm.
    if (rounds && what.reproducible != 0) return false;
    return what.scale == 1 && nccl_supports(what.op, what.dtype);
  }

  void run(const CollectiveCall& call, const Stream& stream) override {
    enter(call.what);
    const DeviceGuard guard(device_);
    const auto count = static_cast<std::size_t>(call.what.count);
    const std::size_t bytes = count * element_size(call.what.dtype);
    const int root = call.what.root;
    cudaStream_t const on = cuda_stream(stream);
    switch (call.what.kind) {
      case CollectiveKind::barrier:
        GANTRY_NCCL_CHECK(
            ncclAllReduce(barrier_word_, barrier_word_, 1, ncclInt32, ncclSum, comm_, on),
            "passing a barrier");
        return;
      case CollectiveKind::all_reduce:
        GANTRY_NCCL_CHECK(ncclAllReduce(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                        nccl_op(call.what.op, call.what.dtype), comm_, on),
                          "reducing over all ranks");
        return;
      case CollectiveKind::reduce:
        GANTRY_NCCL_CHECK(ncclReduce(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                     nccl_op(call.what.op, call.what.dtype), root, comm_, on),
                          "reducing to one rank");
        return;
      case CollectiveKind::broadcast:
        GANTRY_NCCL_CHECK(
            ncclBroadcast(call.in, call.in != nullptr ? const_cast<void*>(call.in) : call.out,
                          bytes, ncclUint8, root, comm_, on),
            "broadcasting");
        return;
      case CollectiveKind::all_gather:
        GANTRY_NCCL_CHECK(ncclAllGather(call.in, call.out, bytes, ncclUint8, comm_, on),
                          "gathering from all ranks");
        return;
      case CollectiveKind::reduce_scatter:
        GANTRY_NCCL_CHECK(ncclReduceScatter(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                            nccl_op(call.what.op, call.what.dtype), comm_, on),
                          "reducing and scattering");
        return;
      case CollectiveKind::gather:
      case CollectiveKind::scatter:
      case CollectiveKind::all_to_all:
      case CollectiveKind::send:
      case CollectiveKind::recv:
        exchange(call, on);
        return;
    }
  }

 private:
  // On one machine calls are compared and missing ranks noticed before NCCL could hang. Sends and
  // receives are between two ranks, which the others know nothing about.
  void enter(const Descriptor& what) {
    if (control_ == nullptr || is_message(what.kind)) return;
    control_->meet(HostCall::none, static_cast<std::uint64_t>(what.call));
    control_->verify(static_cast<std::uint64_t>(what.call));
  }

  // One message from every rank to every rank, of which most may be empty.
  void exchange(const CollectiveCall& call, cudaStream_t on) {
    const CollectiveKind kind = call.what.kind;
    const std::size_t width = element_size(call.what.dtype);
    const std::size_t bytes = static_cast<std::size_t>(call.what.count) * width;
    const int root = call.what.root;
    const auto* in = static_cast<const std::byte*>(call.in);
    auto* out = static_cast<std::byte*>(call.out);
    std::size_t sent = 0;
    std::size_t received = 0;
    GANTRY_NCCL_CHECK(ncclGroupStart(), "beginning messages");
    for (int p = 0; p < size_; ++p) {
      const auto at = static_cast<std::size_t>(p);
      std::size_t send = 0;
      std::size_t receive = 0;
      if (call.is_uneven()) {
        send = static_cast<std::size_t>(call.send_counts[at]) * width;
        receive = static_cast<std::size_t>(call.recv_counts[at]) * width;
      } else if (kind == CollectiveKind::all_to_all) {
        send = receive = bytes;
      } else if (kind == CollectiveKind::gather) {
        send = p == root ? bytes : 0;
        receive = rank_ == root ? bytes : 0;
      } else if (kind == CollectiveKind::scatter) {
        send = rank_ == root ? bytes : 0;
        receive = p == root ? bytes : 0;
      } else if (p == root) {
        (kind == CollectiveKind::send ? send : receive) = bytes;
      }
      if (send > 0) {
        GANTRY_NCCL_CHECK(ncclSend(in + sent, send, ncclUint8, p, comm_, on), "sending");
      }
      if (receive > 0) {
        GANTRY_NCCL_CHECK(ncclRecv(out + received, receive, ncclUint8, p, comm_, on), "receiving");
      }
      // Where one block serves all, or there is but one, it stays.
      if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::scatter) sent += send;
      if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::gather) received += receive;
    }
    GANTRY_NCCL_CHECK(ncclGroupEnd(), "passing messages");
  }

  int rank_;
  int size_;
  Device device_;
  ControlBlock* control_;
  ncclComm_t comm_ = nullptr;
  void* barrier_word_ = nullptr;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlBlock* control) {
  if (platform() != Platform::cuda) {
    throw NotSupported(
        "Communicator::world: ranks on several machines need NCCL, which needs real GPUs");
  }
  return std::make_unique<NcclTransport>(membership, bootstrap, control);
}

}  // namespace gantry
