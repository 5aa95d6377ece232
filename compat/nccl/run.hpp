// Operations of NCCL's interface over a Communicator.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "compat/nccl/host_arrays.hpp"
#include "compat/nccl/operation.hpp"
#include "compat/nccl/rank.hpp"
#include "compat/nccl/reduction.hpp"

namespace gantry::nccl_api {

// Note [Steps of a collective]
// One thread may call for several ranks. The kernel of the first rank then waits on its device
// until the thread has enqueued the others'. Meanwhile the thread must not do what waits for that
// device: the first launch of another kernel there loads code, and new memory is mapped. So a group
// runs each step of a collective for all ranks before the next step.

// An operation whose arrays are known, and are memory of the device.
struct KnownOperation {
  // Throws: as arrays_of(); OutOfMemoryError for arrays in the place of the host's.
  KnownOperation(const Rank& rank, const Operation& operation);

  Operation call;
  Arrays arrays;
  std::optional<HostArrays> host = {};
};

// One collective of one rank, in three steps, each of which enqueues work.
class CollectiveRun {
 public:
  // `operation` outlives it.
  CollectiveRun(const Rank& rank, Communicator group, const KnownOperation& operation);

  // The work before, and memory. Throws: InvalidArgument.
  void prepare();
  // The collective. The host waits for other ranks only where Communicator does.
  void submit();
  // The work after.
  void complete();

 private:
  void submit_move();

  const Rank& rank_;
  const KnownOperation& known_;
  const Operation& call_;
  Communicator group_;
  Stream stream_;
  std::optional<Reduction> reduction_;
  Tensor input_;
  Tensor output_;
};

// Runs one operation of one rank now. Throws: as KnownOperation and Communicator's operation.
void run(const Rank& rank, const Operation& operation);
// Runs the sends and receives among `operations` together. Throws: as Communicator::group().
void run_messages(const Rank& rank, std::span<const KnownOperation> operations);

}  // namespace gantry::nccl_api
