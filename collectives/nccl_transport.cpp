#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>

#include "collectives/nccl_check.hpp"
#include "collectives/transport.hpp"

namespace gantry {

namespace {

cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

std::size_t bytes_of(const Descriptor& call) {
  return static_cast<std::size_t>(call.count) * element_size(call.dtype);
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Membership& membership, Bootstrap& bootstrap, ControlBlock* control)
      : device_(membership.device), control_(control) {
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

  void all_reduce(void* data, const Descriptor& call, const Stream& stream) override {
    require_any_order(call);
    enter(call);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(
        ncclAllReduce(data, data, static_cast<std::size_t>(call.count), nccl_dtype(call.dtype),
                      nccl_op(call.op, call.dtype), comm_, cuda_stream(stream)),
        "reducing over all ranks");
  }

  void broadcast(void* data, const Descriptor& call, const Stream& stream) override {
    enter(call);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(
        ncclBroadcast(data, data, bytes_of(call), ncclUint8, call.root, comm_, cuda_stream(stream)),
        "broadcasting");
  }

  void all_gather(void* out, const void* in, const Descriptor& call,
                  const Stream& stream) override {
    enter(call);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(ncclAllGather(in, out, bytes_of(call), ncclUint8, comm_, cuda_stream(stream)),
                      "gathering from all ranks");
  }

  void reduce_scatter(void* out, const void* in, const Descriptor& call,
                      const Stream& stream) override {
    require_any_order(call);
    enter(call);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(
        ncclReduceScatter(in, out, static_cast<std::size_t>(call.count), nccl_dtype(call.dtype),
                          nccl_op(call.op, call.dtype), comm_, cuda_stream(stream)),
        "reducing and scattering");
  }

  void barrier(const Descriptor& call, const Stream& stream) override {
    enter(call);
    const DeviceGuard guard(device_);
    GANTRY_NCCL_CHECK(ncclAllReduce(barrier_word_, barrier_word_, 1, ncclInt32, ncclSum, comm_,
                                    cuda_stream(stream)),
                      "passing a barrier");
  }

 private:
  // NCCL's order of summation depends on size and algorithm.
  static void require_any_order(const Descriptor& call) {
    const bool rounds =
        is_floating_point(call.dtype) &&
        (call.op == ReduceOp::sum || call.op == ReduceOp::prod || call.op == ReduceOp::avg);
    if (rounds && call.reproducible != 0) {
      throw NotSupported(
          "all_reduce: NCCL cannot add in rank order; pass {.reproducible = false} to accept its "
          "order, or use the p2p transport (one machine, GANTRY_COLL_ALGO=auto)");
    }
    (void)nccl_dtype(call.dtype);
    (void)nccl_op(call.op, call.dtype);
  }

  // On one machine calls are compared and missing ranks noticed before NCCL could hang.
  void enter(const Descriptor& call) {
    if (control_ == nullptr) return;
    control_->describe(call);
    control_->await(control_->announce());
    control_->verify(call.sequence);
  }

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
