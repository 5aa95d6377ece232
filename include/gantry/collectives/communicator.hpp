#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/collectives/reduce_op.hpp>
#include <gantry/collectives/work.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

struct ncclComm;             // NCCL's ncclComm_t points to it
struct ompi_communicator_t;  // Open MPI's MPI_Comm points to it

namespace gantry {

class MessageGroup;
class Window;
struct CollectiveCall;

namespace detail {
// True for MPI's type of communicators. That of another MPI than Open MPI needs
// <gantry/collectives/mpi.hpp>.
template <class T>
struct IsMpiComm : std::is_same<T, ompi_communicator_t*> {};
template <class T>
concept MpiHandle = IsMpiComm<T>::value && sizeof(T) <= sizeof(std::uintptr_t);
}  // namespace detail

/// Choices for one collective call; equal on all ranks.
struct CollectiveOptions {
  /// Sums are the left fold over ranks. False lets floating sums take NCCL, whose order differs,
  /// where GANTRY_COLL_ALGO or the table of algorithms says so.
  bool reproducible = true;
  /// Every input of a floating sum or avg is multiplied by it first, rounded in the accumulator's
  /// type.
  double scale = 1;
};

/// A group of processes with one device each that run collectives.
///
/// A cheap handle: copies refer to the same group. Every rank calls the same operations in the
/// same order with matching arguments. A mismatch is a CollectiveMismatch on every rank, which
/// names rank 0's call and the first call that differs. It changes nothing, and the group stays
/// intact. Some calls make hosts wait for each other: host_barrier, all_gather_bytes, split, grow,
/// register_memory, suspend, resume. Such a call against a collective of others breaks the group.
///
/// Device/stream: an operation runs in order with the current stream of the communicator's device.
/// The host waits neither for other ranks nor for the device. Exceptions are the start of NCCL, and
/// ranks that cannot reach each other's memory: there the host passes the messages. Operations of
/// one communicator run one after the other; sends are ordered among themselves, and so are
/// receives. The code that launches a captured graph is responsible for this order. Results have
/// the same bits on every rank, and equal those of comm::*.
///
/// Failure: the device detects faults. The Work or the next synchronizing call of the device throws
/// them, whichever comes first. Other calls throw only once the group is broken, so after a
/// mismatch all ranks still make the same calls. Over "host" the differing call itself throws, on
/// every rank.
///  * A rank that dies or leaves is a PeerLostError on every other rank within a second. The
///    communicator is unusable from then on; shrink() makes a new one, and grow() of that one takes
///    replacements in.
///  * A rank that does not come is a TimeoutError after GANTRY_COLL_TIMEOUT seconds, which names
///    it. Between machines, so is a call that makes hosts wait against another call.
///  * A send and a recv that differ are a CollectiveMismatch at both ends, which names both calls,
///    at the latest with the next call. Over "p2p" it breaks the group, over "host" it does not.
///  * Where NCCL carries data between machines, only the deadline detects mismatches and losses.
///    Its error names the call.
///
/// Output tensors are const references: an operation writes the elements, not the handle. A
/// temporary view serves as well: `all_reduce(gradients[0])`.
///
/// Thread safety: one thread at a time enters an operation; others wait.
class GANTRY_API Communicator {
 public:
  /// The group of all processes of this job: glaunch, mpirun, srun, torchrun-style variables or a
  /// single process, detected in this order. Made at the first call, which every rank must make;
  /// sets the calling thread's current device to device(). Under mpirun it initializes MPI, unless
  /// the program has done so before: afterwards MPI_Init would be an error. In a replacement
  /// process of `glaunch --elastic` it waits, without a deadline, for a grow() of the other ranks.
  /// Throws: InvalidArgument for contradictory variables or a rank without a device;
  /// TimeoutError; PeerLostError; NotSupported.
  static Communicator world();
  /// A group inside this process: one communicator per device, in rank order. Each may be used by a
  /// thread of its own. One thread may serve them all where transport() is "p2p" or "nccl", whose
  /// operations do not wait on the host for other ranks. Over "host" it waits for itself: that
  /// throws InvalidArgument where the program has no other thread, else TimeoutError.
  /// Throws: InvalidArgument for no device, the CPU, or a device that occurs twice; Error if the
  /// system has no thread for a rank.
  [[nodiscard]] static std::vector<Communicator> local(const std::vector<Device>& devices);
  /// The group of the ranks of an MPI communicator, `MPI_Comm`. Every rank of `comm` calls it; the
  /// program has initialized MPI. The type of another MPI than Open MPI needs
  /// <gantry/collectives/mpi.hpp>.
  ///
  /// Device/stream: `device`, which becomes the calling thread's current device; by default the one
  /// that world() chooses. Blocks the host. The group makes a communicator of its own from `comm`,
  /// and frees it at its end; `comm` stays the program's.
  /// Thread safety: gantry calls MPI in threads that use the group, one at a time. Beside calls of
  /// the program it needs MPI_THREAD_MULTIPLE.
  /// Throws: InvalidArgument for MPI_COMM_NULL, MPI outside of its use, a device that is not one,
  /// or contradictory variables; NotSupported without MPI, or if the program uses another MPI than
  /// gantry was built with; TimeoutError; PeerLostError.
  template <detail::MpiHandle MpiComm>
  explicit Communicator(MpiComm comm, std::optional<Device> device = {}) {
    std::uintptr_t bits = 0;
    std::memcpy(&bits, &comm, sizeof comm);
    *this = from_mpi(bits, device);
  }
  /// The group of the ranks of an NCCL communicator, `ncclComm_t`, which was made for `device`.
  /// Every rank of `comm` calls it; nothing of this rank runs on `comm` meanwhile.
  ///
  /// The ranks exchange addresses through `comm`, which stays the program's and must outlive the
  /// group. Operations use gantry's transports, as in every group. An NCCL communicator of gantry's
  /// own carries those of NCCL, so that the end of the group leaves `comm` intact.
  /// Device/stream: `device` becomes the calling thread's current device. Blocks the host.
  /// Throws: InvalidArgument for a null communicator or one of another device;
  /// NotSupported on simulated devices and without NCCL; NcclError; TimeoutError; PeerLostError.
  static Communicator from_nccl(ncclComm* comm, Device device);
  /// Undefined: names no group. Every member but defined() and abort() throws InvalidArgument.
  Communicator() = default;

  /// Rank of this process in the group, 0 to size() - 1.
  [[nodiscard]] int rank() const;
  /// Number of ranks.
  [[nodiscard]] int size() const;
  /// Rank among the processes of this node.
  [[nodiscard]] int local_rank() const;
  /// Number of processes on this node.
  [[nodiscard]] int local_size() const;
  /// The device that this rank's tensors live on.
  [[nodiscard]] Device device() const;
  /// How this process was started: "glaunch", "openmpi", …, "single".
  [[nodiscard]] const std::string& launched_by() const;
  /// The transport between ranks: "p2p", "nccl", "host" or "none" (one rank).
  [[nodiscard]] std::string transport() const;
  /// One line per rank: rank, host, process, device. The same on every rank.
  [[nodiscard]] const std::vector<std::string>& device_map() const;

  /// Reduces `tensor` over all ranks, in place.
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum,
                  CollectiveOptions options = {}) const;
  Work all_reduce(const Tensor& tensor, CollectiveOptions options) const {
    return all_reduce(tensor, ReduceOp::sum, options);
  }
  /// Reduces several tensors in place as one transfer per dtype; bits equal those of all_reduce.
  Work all_reduce_coalesced(std::span<const Tensor> tensors, ReduceOp op = ReduceOp::sum,
                            CollectiveOptions options = {}) const;
  Work all_reduce_coalesced(std::span<const Tensor> tensors, CollectiveOptions options) const {
    return all_reduce_coalesced(tensors, ReduceOp::sum, options);
  }
  /// Reduces `tensor` over all ranks into that of rank `root`; the others' stay as they are.
  Work reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
              CollectiveOptions options = {}) const;
  Work reduce(const Tensor& tensor, int root, CollectiveOptions options) const {
    return reduce(tensor, root, ReduceOp::sum, options);
  }
  /// Overwrites `tensor` with that of rank `root`.
  Work broadcast(const Tensor& tensor, int root = 0, CollectiveOptions options = {}) const;
  /// Writes every rank's `input` into `output`, joined along dim 0 in rank order. The input may be
  /// its place in the output.
  /// Shapes: output has size() times the rows of input, or is [size(), …] for an input […], also
  /// of no dims; inputs are equal on all ranks.
  Work all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options = {}) const;
  /// Reduces `input` and leaves rows rank·m … (rank+1)·m-1 of the result in `output`.
  /// Shapes: output has m rows, input size()·m; or input is [size(), …] for an output […].
  Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                      CollectiveOptions options = {}) const;
  Work reduce_scatter(const Tensor& output, const Tensor& input, CollectiveOptions options) const {
    return reduce_scatter(output, input, ReduceOp::sum, options);
  }
  /// As all_gather, into `output` of rank `root` alone; elsewhere `output` is ignored and may be
  /// undefined.
  Work gather(const Tensor& output, const Tensor& input, int root = 0,
              CollectiveOptions options = {}) const;
  /// Sends rows r·m … (r+1)·m-1 of `root`'s `input` to `output` of rank r; elsewhere `input` is
  /// ignored and may be undefined. Shapes: as for reduce_scatter.
  Work scatter(const Tensor& output, const Tensor& input, int root = 0,
               CollectiveOptions options = {}) const;
  /// Sends block r of `input` to rank r, where it becomes block rank() of `output`; blocks are
  /// equal parts of dim 0.
  Work all_to_all(const Tensor& output, const Tensor& input, CollectiveOptions options = {}) const;
  /// As above with blocks of `input_rows[r]` rows to rank r and `output_rows[r]` rows from it.
  /// Throws: ShapeError also unless the rows add up to the rows of the tensors. InvalidArgument on
  /// both ranks if a rank sends another number of rows than its peer expects.
  Work all_to_all(const Tensor& output, const Tensor& input,
                  std::span<const std::int64_t> output_rows,
                  std::span<const std::int64_t> input_rows, CollectiveOptions options = {}) const;
  Work all_to_all(const Tensor& output, const Tensor& input,
                  std::initializer_list<std::int64_t> output_rows,
                  std::initializer_list<std::int64_t> input_rows,
                  CollectiveOptions options = {}) const {
    return all_to_all(output, input, std::span(output_rows.begin(), output_rows.size()),
                      std::span(input_rows.begin(), input_rows.size()), options);
  }
  /// Sends `tensor` to `destination`, which receives it by its next recv() from this rank. Small
  /// messages leave at once, larger ones when they are received. Ranks that send to each other
  /// before they receive need send_recv(), group() or two streams.
  Work send(const Tensor& tensor, int destination, CollectiveOptions options = {}) const;
  /// Overwrites `tensor` with the next message of `source` to this rank. Shapes may differ; dtype
  /// and number of elements must not.
  Work recv(const Tensor& tensor, int source, CollectiveOptions options = {}) const;
  /// Sends `out` to rank `to`, and overwrites `in` with the next message of rank `from`. Both run
  /// concurrently: a ring of such calls cannot deadlock. Both ranks may be this one, which copies.
  /// The peer may call send(), recv(), send_recv() or use a group(); the same things must match.
  /// Aliasing: the tensors may overlap; `out` is then read first.
  Work send_recv(const Tensor& out, int to, const Tensor& in, int from,
                 CollectiveOptions options = {}) const;
  /// Opens a scope in which this thread's sends and receives on this communicator are collected.
  /// They run concurrently when the scope ends, as between ncclGroupStart() and ncclGroupEnd().
  /// Throws: InvalidArgument if the thread has an open scope on this communicator.
  [[nodiscard]] MessageGroup group() const;
  /// Work submitted later on any rank runs after all work submitted earlier on every rank. Moves
  /// no data; the host does not wait.
  Work barrier(CollectiveOptions options = {}) const;
  /// Opens the whole storage of `tensor` to every rank. Large operations on tensors in it, at the
  /// same offset on every rank, then need no staging: kernels and copy engines read and write the
  /// ranks' tensors. This holds for the tensor of all_reduce, reduce and broadcast, the output of
  /// all_gather and all_to_all, and the input of reduce_scatter. It does not hold for small
  /// operations, and for ranks that cannot reach each other's memory.
  ///
  /// Collective: every rank calls it in the same order with memory of one size. Later operations
  /// get registered tensors on all ranks or on none; else they are a mismatch. After a mismatch or
  /// a loss, outputs are undefined on all ranks. Other ranks may write to them until those ranks'
  /// devices are done. Blocks the host. The group holds the memory until deregister_memory() or its
  /// end. Groups made by split() and shrink() do not have the registration.
  /// Throws, on every rank: InvalidArgument for memory of different sizes or registered already.
  /// On the rank concerned: NotSupported for memory that export_ipc() refuses; DeviceMismatchError.
  void register_memory(const Tensor& tensor) const;
  /// Closes memory that register_memory() opened. Every rank calls it between the same operations;
  /// the host does not wait. Graphs that read the memory must not be launched again. Throws:
  /// InvalidArgument if it is not registered.
  void deregister_memory(const Tensor& tensor) const;
  /// Opens the memory of `tensor` on every rank for kernels of the program: see Window.
  ///
  /// Collective: every rank calls it in the same order, with tensors of one dtype, shape and
  /// layout, in memory of one size. Blocks the host.
  /// Throws, on every rank: InvalidArgument for tensors that differ; NotSupported if ranks cannot
  /// reach each other's memory. On the rank concerned: NotSupported for memory that export_ipc()
  /// refuses; DeviceMismatchError.
  [[nodiscard]] Window window(const Tensor& tensor) const;
  /// Gives the group's device memory back to the device: the workspace of "p2p", 32 MiB a rank. No
  /// operation may be called until resume(). Registered memory stays registered.
  ///
  /// Collective. Blocks the host until the operations of every rank are done. Does nothing over
  /// other transports. Throws: InvalidArgument if the group is suspended, and on every rank if an
  /// operation of one of them was captured, since its graph uses the workspace; PeerLostError.
  void suspend() const;
  /// Takes device memory as before suspend().
  ///
  /// Collective. Blocks the host. Throws: InvalidArgument unless the group is suspended;
  /// OutOfMemoryError, which leaves all ranks suspended; PeerLostError.
  void resume() const;
  /// True between suspend() and resume().
  [[nodiscard]] bool is_suspended() const;
  /// Blocks the host until every rank has called it. Touches no device.
  void host_barrier() const;
  /// Joins one byte string of every rank, in rank order, on the host.
  [[nodiscard]] std::vector<std::string> all_gather_bytes(const std::string& bytes) const;

  /// One group per `color` (0 or more) of the ranks that gave it, ordered by `key`, then rank. A
  /// negative color takes part and gets an undefined communicator. Collective.
  [[nodiscard]] Communicator split(int color, int key = 0) const;
  /// The group of all ranks but `failed`, in their order, with new workspaces; every survivor calls
  /// it with the same list, also after a PeerLostError. Inputs of the operation that failed are
  /// untouched unless it was in place.
  /// Throws: InvalidArgument for a rank that the group does not have, or this one; PeerLostError if
  /// another rank is lost meanwhile. In a job of `glaunch --elastic` every survivor throws it, with
  /// the lost rank of this group, and calls shrink() again with that rank in the list.
  [[nodiscard]] Communicator shrink(const std::vector<int>& failed) const;
  /// The group of these ranks and of replacements of lost ranks: `expected` ranks in all.
  ///
  /// For a job of `glaunch --elastic`, which starts a process for every rank that is lost. Such a
  /// process joins in Communicator::world(), which returns the group that this call makes. Every
  /// rank of an intact group calls it, usually one that shrink() made. Ranks are in the order of
  /// GANTRY_RANK: a replacement has the place of the process before it, and a group of the whole
  /// job has the ranks of the job. Blocks the host. The group has new workspaces and no registered
  /// memory; this communicator stays usable.
  ///
  /// `timeout` is how long ranks wait for replacements, 0: GANTRY_COLL_TIMEOUT; equal on all ranks.
  /// A replacement that is lost while it joins is replaced within that time.
  /// Throws, on every rank, and this group stays usable: TimeoutError with the number of ranks that
  /// came; NotSupported without glaunch --elastic; InvalidArgument unless `expected` is more than
  /// size() and at most the ranks of the job, for arguments that differ, and for a replacement with
  /// another version of gantry or other settings; Error while another group of the job grows.
  /// PeerLostError with the rank of this group that was lost, or if ranks of the job have ended so
  /// that too few can come.
  [[nodiscard]] Communicator grow(int expected, std::chrono::milliseconds timeout = {}) const;
  /// False for the result of split() with a negative color and for a default-constructed one.
  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }

  /// Makes every rank's pending and later calls throw PeerLostError (ranks of one machine). Does
  /// nothing to an undefined communicator.
  void abort() const noexcept;

 private:
  friend class MessageGroup;
  friend class Window;
  class GANTRY_LOCAL Impl;
  explicit Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  // `comm` has the bytes of an MPI_Comm. Throws: see the public constructor.
  static Communicator from_mpi(std::uintptr_t comm, std::optional<Device> device);
  // The group. Throws: InvalidArgument that names `member` if there is none.
  Impl& group(std::string_view member) const;
  Work submit(CollectiveCall& call, const CollectiveOptions& options) const;
  static void mark_end(Work& work);
  bool is_own_slice(const CollectiveCall& call, const Tensor& output, const Tensor& input) const;
  Work move_between(CollectiveCall& call, const Tensor* output, const Tensor* input,
                    const CollectiveOptions& options) const;

  struct GANTRY_LOCAL Message;
  struct GANTRY_LOCAL OpenGroup;
  Work post(const Message& message) const;
  Work exchange(std::vector<Message> messages, std::shared_ptr<Work::State> state) const;

  std::shared_ptr<Impl> impl_;
};

/// Sends and receives of one thread on one communicator that start together.
///
///     {
///       auto group = world.group();
///       world.send(out, next);
///       world.recv(in, previous);
///     }  // both run here
///
/// Calls inside the scope only record their tensors, whose contents are read and written when the
/// scope ends. Messages between the same two ranks keep their order; all others run concurrently,
/// so no order of calls inside a group can deadlock. A rank may send to itself if it receives
/// as much inside the same group. Up to 512 messages. The Work of each call is the Work of the
/// whole group, and may be used only once the group has ended.
///
/// Device/stream: the group runs after the work of all streams that were current at its calls, and
/// later work of these streams runs after the group. Works in a graph capture.
/// Aliasing: tensors that are sent may overlap others, and are read first; tensors that are
/// received into may not overlap each other.
/// Thread safety: calls of other threads are not collected. A group is ended by its own thread.
class GANTRY_API MessageGroup {
 public:
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;
  /// Ends the group, unless end() has. While an exception unwinds the scope, the messages are
  /// dropped instead. An error is logged; the Work objects of the group throw it, and so does the
  /// next operation of the communicator.
  ~MessageGroup();
  /// Submits the collected messages and closes the scope, also if it throws.
  /// Throws: as send() and recv(); InvalidArgument for tensors that overlap, for messages to this
  /// rank itself that do not pair up, and after a first call.
  Work end();

 private:
  friend class Communicator;
  MessageGroup(const Communicator& communicator, std::shared_ptr<Communicator::OpenGroup> open);

  Communicator communicator_;
  std::shared_ptr<Communicator::OpenGroup> open_;
  int exceptions_;
};

}  // namespace gantry
