#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/collectives/work.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

struct Descriptor;

/// Choices for one collective call; equal on all ranks.
struct CollectiveOptions {
  /// Sums are the left fold over ranks. False lets large floating sums take NCCL, whose order
  /// differs.
  bool reproducible = true;
};

/// A group of processes with one device each that run collectives together.
///
/// A cheap handle; copies name the same group. Every rank calls the same operations in the same
/// order with matching arguments; a mismatch is an InvalidArgument on every rank, naming rank 0's
/// call and the first that differs. It changes nothing, and the group goes on.
///
/// Device/stream: an operation runs in order with the current stream of the communicator's device.
/// The host waits until every rank has entered the same operation, but not for the device.
/// Results have the same bits on every rank, and as comm::* gives.
///
/// Failure: a rank that dies or leaves makes every other rank's call throw PeerLostError within a
/// second; the communicator is unusable from then on. A rank that does not come is a TimeoutError
/// after GANTRY_COLL_TIMEOUT seconds, naming it. Between machines NCCL alone decides what happens:
/// mismatches and losses are not noticed there yet.
///
/// Thread safety: one thread at a time enters an operation; others wait.
class Communicator {
 public:
  /// The group of all processes of this job: glaunch, torchrun-style variables, mpirun, srun or a
  /// single process, detected in this order. Made at the first call, which every rank must make;
  /// sets the calling thread's current device to device().
  /// Throws: InvalidArgument for contradictory variables or a rank without a device;
  /// TimeoutError; PeerLostError; NotSupported.
  static Communicator world();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Rank among the processes of this node.
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int local_size() const;
  /// The device that this rank's tensors live on.
  [[nodiscard]] Device device() const;
  /// How this process was started: "glaunch", "openmpi", …, "single".
  [[nodiscard]] const std::string& launched_by() const;
  /// What carries data between ranks: "p2p", "nccl" or "none" (one rank).
  [[nodiscard]] std::string transport() const;
  /// One line per rank: rank, host, process, device. The same on every rank.
  [[nodiscard]] const std::vector<std::string>& device_map() const;

  /// Reduces `tensor` over all ranks, in place.
  Work all_reduce(Tensor& tensor, ReduceOp op = ReduceOp::sum, CollectiveOptions options = {});
  /// Reduces several tensors in place as one transfer per dtype; bits equal those of all_reduce.
  Work all_reduce_coalesced(std::span<Tensor> tensors, ReduceOp op = ReduceOp::sum,
                            CollectiveOptions options = {});
  /// Overwrites `tensor` with that of rank `root`.
  Work broadcast(Tensor& tensor, int root = 0);
  /// Writes every rank's `input` into `output`, joined along dim 0 in rank order.
  /// Shapes: output has size() times the rows of input; inputs are equal on all ranks.
  Work all_gather(Tensor& output, const Tensor& input);
  /// Reduces `input` and leaves rows rank·m … (rank+1)·m-1 of the result in `output`.
  /// Shapes: output has m rows, input size()·m.
  Work reduce_scatter(Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                      CollectiveOptions options = {});
  /// Work submitted later on any rank runs after all work submitted earlier on every rank; on
  /// return every rank has entered. Moves no data.
  Work barrier();
  /// Joins one byte string of every rank, in rank order, on the host.
  [[nodiscard]] std::vector<std::string> all_gather_bytes(const std::string& bytes);

  /// Makes every rank's pending and later calls throw PeerLostError (ranks of one machine).
  void abort() noexcept;

 private:
  class Impl;
  explicit Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  template <class Run>
  Work submit(Descriptor call, std::int64_t bytes, Run run);

  std::shared_ptr<Impl> impl_;
};

}  // namespace gantry
