#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/collectives/collective_options.hpp>
#include <gantry/collectives/connect_options.hpp>
#include <gantry/collectives/mpi_handle.hpp>
#include <gantry/collectives/reduce_op.hpp>
#include <gantry/collectives/work.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

struct ncclComm;  // NCCL's ncclComm_t points to it

namespace gantry {

class MessageGroup;
class Window;
struct CollectiveCall;

/// A group of processes with one device each that run collectives.
///
/// A cheap handle: copies refer to the same group. Every rank calls the same operations in the same
/// order with matching arguments. A mismatch is a CollectiveMismatch on every rank. Its text has
/// rank 0's call and the first call that differs. It changes nothing, and the group stays intact.
///
/// Arguments match if roots, ReduceOps and options are equal, and if all ranks give equally many
/// tensors of equal dtypes and shapes in one order. A shape [] differs from [1], and [2, 3] from
/// [3, 2]. Strides may differ. Members that allow other shapes say so. An all_reduce_coalesced of
/// one tensor is another operation than an all_reduce.
///
/// In some calls the hosts of all ranks wait for each other: host_barrier, all_gather_bytes, split,
/// grow, register_memory, window, suspend, resume. If one rank makes such a call and another rank a
/// collective, the group is broken.
///
/// Device/stream: an operation runs in order with the current stream of the communicator's device.
/// The host waits neither for other ranks nor for the device. There are two exceptions: the start
/// of NCCL, and the transport "host", which blocks the host until the other ranks have entered.
/// Collectives of one communicator run one after the other, and so do sends, and so do receives.
/// The program keeps this order when it launches captured graphs. Results have the same bits on
/// every rank and in comm::*.
///
/// Failure: the device detects faults. The Work or the next synchronizing call of the device throws
/// them, whichever comes first. Other calls throw only once the group is broken. After a mismatch
/// all ranks therefore still make the same calls. Over "host" the call that differs throws itself,
/// on every rank.
///  * A rank that dies or leaves is a PeerLostError on every other rank within a second. The
///    communicator is unusable from then on. shrink() makes a new one, and its grow() adds
///    replacements.
///  * A rank that does not make the call is a TimeoutError that names it, after timeout(). Between
///    machines this also holds if hosts wait in different calls.
///  * A send and a recv that differ are a CollectiveMismatch that names both calls. Both ranks
///    throw it, from the next call at the latest. Over "p2p" it breaks the group, over "host" not.
///    There the sender's next send or collective throws it. If the receiver does not come to that
///    collective, and the tensors are large, all ranks of the collective throw it.
///  * Where NCCL carries data between machines, only the deadline detects mismatches and losses.
///    Its TimeoutError names the call, not the rank.
///
/// Throws, before anything is enqueued: InvalidArgument for an undefined tensor, a rank that the
/// group does not have, or an output whose elements share memory; DeviceMismatchError for a tensor
/// that is not on device(); ShapeError; DTypeError. PeerLostError or TimeoutError if the group is
/// broken.
///
/// Aliasing: outputs are const references, because an operation writes the elements and not the
/// handle. A temporary view is allowed: `all_reduce(gradients[0])`.
///
/// Thread safety: any thread. One thread at a time submits an operation; others wait.
/// @code
/// const Communicator world = Communicator::world();
/// const Tensor x = ones({4, 2}, world.device());
/// world.all_reduce(x, ReduceOp::avg);
/// @endcode
/// @since 0.1
class GANTRY_API Communicator {
 public:
  /// The group of all processes of this job, made at the first call. Every rank must call it.
  ///
  /// The launcher is detected in this order: glaunch, mpirun, srun, torchrun-style variables, none
  /// (a single process). Under mpirun the call initializes MPI unless the program has; a later
  /// MPI_Init is an error. In a replacement of `glaunch --elastic` it waits, without a deadline,
  /// until the others call grow(). Elsewhere GANTRY_ELASTIC does as ConnectOptions::elastic.
  /// Device/stream: device() becomes the thread's current device. The first call blocks the host.
  /// Throws: InvalidArgument for contradictory variables or a rank without a device; TimeoutError;
  /// PeerLostError; NotSupported.
  static Communicator world();
  /// A group inside this process: one communicator per device, in rank order.
  ///
  /// Each communicator may have its own thread. One thread may also call for all ranks if
  /// transport() is "p2p" or "nccl". These transports do not block the host for other ranks. Over
  /// "host" that thread would wait for itself. The call then throws InvalidArgument if the program
  /// has no other thread, else TimeoutError.
  /// Throws: InvalidArgument for no device, the CPU, or a device that occurs twice; Error if the
  /// system has no thread for a rank.
  [[nodiscard]] static std::vector<Communicator> local(const std::vector<Device>& devices);
  /// Makes a group of callers that know an address and their ranks. They are processes, or threads
  /// of a process, without the variables of a launcher.
  ///
  /// If the group is elastic, a process that makes the call of a lost rank again waits until the
  /// others call grow(), and joins them. If all processes are gone, new ones make the group.
  /// Device/stream: the device becomes the calling thread's current device. Blocks the host until
  /// all ranks have come. The first rank to come may wait for the server.
  /// Throws: InvalidArgument for a rank outside of the size, a malformed address, a token that is
  /// missing or too short, a bad name, or ranks with other sizes or names; TimeoutError that names
  /// the absent ranks; PeerLostError, also for a rank that was lost before.
  [[nodiscard]] static Communicator connect(const ConnectOptions& options);
  /// Makes a group of the ranks of an MPI communicator, `MPI_Comm`. Every rank of `comm` calls it.
  /// The program has initialized MPI. Other libraries than Open MPI need
  /// <gantry/collectives/mpi.hpp>.
  ///
  /// Device/stream: `device`, by default the one that world() chooses, becomes the thread's current
  /// device. Blocks the host. The group makes its own MPI communicator from `comm`, and frees it at
  /// its end. The program keeps `comm`.
  /// Thread safety: gantry calls MPI from the threads that use the group, one at a time. If the
  /// program calls MPI at the same time, MPI_THREAD_MULTIPLE is required.
  /// Throws: InvalidArgument for MPI_COMM_NULL, before MPI_Init or after MPI_Finalize, for an
  /// invalid device, or for contradictory variables; NotSupported without MPI, or if gantry was
  /// built with another MPI; TimeoutError; PeerLostError.
  template <detail::MpiHandle MpiComm>
  explicit Communicator(MpiComm comm, std::optional<Device> device = {}) {
    std::uintptr_t bits = 0;
    std::memcpy(&bits, &comm, sizeof comm);
    *this = from_mpi(bits, device);
  }
  /// Makes a group of the ranks of an NCCL communicator, `ncclComm_t`, which was made for `device`.
  /// Every rank of `comm` calls it. Precondition: this rank has no work on `comm` meanwhile.
  ///
  /// The ranks exchange addresses through `comm`. The program keeps `comm`, which must outlive the
  /// group. Operations use gantry's transports, as in every group. The transport "nccl" has its own
  /// NCCL communicator, so the end of the group leaves `comm` intact.
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
  /// Name of the group: as given to split() or connect(), else a path such as "world.1.0". Errors,
  /// flight records and logs show it. At most 47 printable bytes.
  [[nodiscard]] const std::string& name() const;
  /// The rank in `other`, a group of the same job, of rank `rank` of this group. None if `other`
  /// does not have it. Throws: InvalidArgument for a rank that this group does not have.
  [[nodiscard]] std::optional<int> rank_in(const Communicator& other, int rank) const;
  /// The deadline of operations and host calls: set_timeout(), ConnectOptions::timeout, the parent
  /// group's, or GANTRY_COLL_TIMEOUT.
  [[nodiscard]] std::chrono::milliseconds timeout() const;
  /// Sets the deadline of this rank's operations, also of those on the device now, and of its later
  /// host calls. Between machines, host calls keep the deadline with which the group was made.
  /// Groups made from this one start with it. Throws: InvalidArgument unless it is positive.
  void set_timeout(std::chrono::milliseconds timeout) const;
  /// One line per rank: rank, host, process, device. The same on every rank. A group with a name of
  /// the program has it in each line.
  [[nodiscard]] const std::vector<std::string>& device_map() const;

  /// Reduces `tensor` over all ranks, in place. Shapes, DTypes: equal on all ranks; see ReduceOp.
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum,
                  CollectiveOptions options = {}) const;
  Work all_reduce(const Tensor& tensor, CollectiveOptions options) const {
    return all_reduce(tensor, ReduceOp::sum, std::move(options));
  }
  /// Reduces `input` over all ranks into `output`, which has its shape and dtype. The result has
  /// the bits of the call in place. Registered memory is staged. Aliasing: both may be one tensor.
  Work all_reduce(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                  CollectiveOptions options = {}) const;
  /// Reduces several tensors in place, as one transfer per dtype. The bits are those of all_reduce.
  /// Shapes, DTypes: equal on all ranks, tensor by tensor in list order. Another order is a
  /// CollectiveMismatch that names the lists: "f32[3]+f32[5]".
  Work all_reduce_coalesced(std::span<const Tensor> tensors, ReduceOp op = ReduceOp::sum,
                            CollectiveOptions options = {}) const;
  Work all_reduce_coalesced(std::span<const Tensor> tensors, CollectiveOptions options) const {
    return all_reduce_coalesced(tensors, ReduceOp::sum, std::move(options));
  }
  /// Reduces `tensor` over all ranks into the tensor of rank `root`. The other ranks' tensors are
  /// unchanged. Shapes, DTypes: as for all_reduce.
  Work reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
              CollectiveOptions options = {}) const;
  Work reduce(const Tensor& tensor, int root, CollectiveOptions options) const {
    return reduce(tensor, root, ReduceOp::sum, std::move(options));
  }
  /// Reduces `input` over all ranks into the `output` of rank `root`. On other ranks `output` is
  /// ignored and may be undefined. Shapes, DTypes: as for all_reduce.
  Work reduce(const Tensor& output, const Tensor& input, int root = 0, ReduceOp op = ReduceOp::sum,
              CollectiveOptions options = {}) const;
  /// Overwrites `tensor` with that of rank `root`. Shapes, DTypes: equal on all ranks.
  /// Example: `world.broadcast(x, 0);`
  Work broadcast(const Tensor& tensor, int root = 0, CollectiveOptions options = {}) const;
  /// Overwrites the `output` of every rank with the `input` of rank `root`. Elsewhere `input` is
  /// ignored and may be undefined. Ranks may mix both forms. Aliasing: both may overlap.
  Work broadcast(const Tensor& output, const Tensor& input, int root = 0,
                 CollectiveOptions options = {}) const;
  /// Writes every rank's `input` into `output`, joined along dim 0 in rank order.
  /// Aliasing: `input` may be this rank's slice of `output`.
  /// Shapes: inputs are equal on all ranks. `output` has size() times the rows of `input`, or is
  /// [size(), …] for an input […]; ranks may differ in that. A 0-dim input gives [size()].
  Work all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options = {}) const;
  /// As above, with `rows[r]` rows of rank r, which may be 0.
  /// Shapes: `input` has rows[rank()] rows, `output` has all of them. `rows` is equal on all ranks;
  /// otherwise every rank gets a CollectiveMismatch. Throws: ShapeError if the rows do not fit.
  Work all_gather(const Tensor& output, const Tensor& input, std::span<const std::int64_t> rows,
                  CollectiveOptions options = {}) const;
  Work all_gather(const Tensor& output, const Tensor& input,
                  std::initializer_list<std::int64_t> rows, CollectiveOptions options = {}) const {
    return all_gather(output, input, std::span(rows.begin(), rows.size()), std::move(options));
  }
  /// Returns what all_gather() writes, in new memory: [size()·m, …] for an input [m, …].
  /// Example: `const Tensor all = world.all_gather(x);`
  [[nodiscard]] Tensor all_gather(const Tensor& input, CollectiveOptions options = {}) const;
  /// Reduces `input` over all ranks. `output` gets rows rank()·m … (rank()+1)·m-1 of the result.
  /// Shapes: `output` has m rows and `input` size()·m, or `input` is [size(), …] for an output […].
  /// Outputs are equal on all ranks. Aliasing: `output` may be this rank's slice of `input`.
  Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                      CollectiveOptions options = {}) const;
  Work reduce_scatter(const Tensor& output, const Tensor& input, CollectiveOptions options) const {
    return reduce_scatter(output, input, ReduceOp::sum, std::move(options));
  }
  /// As above, but rank r gets the next `rows[r]` rows of the result. `rows`: as for all_gather.
  Work reduce_scatter(const Tensor& output, const Tensor& input, std::span<const std::int64_t> rows,
                      ReduceOp op = ReduceOp::sum, CollectiveOptions options = {}) const;
  Work reduce_scatter(const Tensor& output, const Tensor& input,
                      std::initializer_list<std::int64_t> rows, ReduceOp op = ReduceOp::sum,
                      CollectiveOptions options = {}) const {
    return reduce_scatter(output, input, std::span(rows.begin(), rows.size()), op,
                          std::move(options));
  }
  /// Returns what reduce_scatter() writes, in new memory: [m, …] for an input [size()·m, …].
  /// Example: `const Tensor part = world.reduce_scatter(world.all_gather(x));`
  [[nodiscard]] Tensor reduce_scatter(const Tensor& input, ReduceOp op = ReduceOp::sum,
                                      CollectiveOptions options = {}) const;
  /// As all_gather, but only rank `root` receives. Others ignore `output`, which may be undefined.
  Work gather(const Tensor& output, const Tensor& input, int root = 0,
              CollectiveOptions options = {}) const;
  Work gather(const Tensor& output, const Tensor& input, std::span<const std::int64_t> rows,
              int root = 0, CollectiveOptions options = {}) const;
  Work gather(const Tensor& output, const Tensor& input, std::initializer_list<std::int64_t> rows,
              int root = 0, CollectiveOptions options = {}) const {
    return gather(output, input, std::span(rows.begin(), rows.size()), root, std::move(options));
  }
  /// Returns what gather() writes on rank `root`, in new memory; an undefined tensor on the others.
  [[nodiscard]] Tensor gather(const Tensor& input, int root = 0,
                              CollectiveOptions options = {}) const;
  /// Sends rows r·m … (r+1)·m-1 of the `input` of rank `root` to the `output` of rank r. On other
  /// ranks `input` is ignored and may be undefined. Shapes, Aliasing: as for reduce_scatter.
  Work scatter(const Tensor& output, const Tensor& input, int root = 0,
               CollectiveOptions options = {}) const;
  /// As above, but rank r gets the next `rows[r]` rows of the input. `rows`: as for all_gather.
  Work scatter(const Tensor& output, const Tensor& input, std::span<const std::int64_t> rows,
               int root = 0, CollectiveOptions options = {}) const;
  Work scatter(const Tensor& output, const Tensor& input, std::initializer_list<std::int64_t> rows,
               int root = 0, CollectiveOptions options = {}) const {
    return scatter(output, input, std::span(rows.begin(), rows.size()), root, std::move(options));
  }
  /// Sends block r of `input`, an equal part of dim 0, to rank r as block rank() of `output`.
  Work all_to_all(const Tensor& output, const Tensor& input, CollectiveOptions options = {}) const;
  /// As above, with a block of `input_rows[r]` rows to rank r and one of `output_rows[r]` rows from
  /// it. Shapes: rows are equal on all ranks.
  /// Throws: ShapeError unless the rows add up to the rows of the tensors. If a rank sends another
  /// number of rows than its receiver expects, every rank gets a CollectiveMismatch.
  Work all_to_all(const Tensor& output, const Tensor& input,
                  std::span<const std::int64_t> output_rows,
                  std::span<const std::int64_t> input_rows, CollectiveOptions options = {}) const;
  Work all_to_all(const Tensor& output, const Tensor& input,
                  std::initializer_list<std::int64_t> output_rows,
                  std::initializer_list<std::int64_t> input_rows,
                  CollectiveOptions options = {}) const {
    return all_to_all(output, input, std::span(output_rows.begin(), output_rows.size()),
                      std::span(input_rows.begin(), input_rows.size()), std::move(options));
  }
  /// Returns what all_to_all() with equal blocks writes, in new memory.
  /// Example: `const Tensor turned = world.all_to_all(world.all_gather(x));`
  [[nodiscard]] Tensor all_to_all(const Tensor& input, CollectiveOptions options = {}) const;
  /// Sends `tensor` to rank `destination`, which receives it by its next recv() from this rank. A
  /// small message leaves at once, a larger one when the peer receives it. Two ranks that both send
  /// a larger message before they receive wait for each other: use send_recv(), group() or two
  /// streams.
  Work send(const Tensor& tensor, int destination, CollectiveOptions options = {}) const;
  /// Overwrites `tensor` with the next message from rank `source`. Shapes: the number of elements
  /// is that of the message. DTypes: that of the message.
  Work recv(const Tensor& tensor, int source, CollectiveOptions options = {}) const;
  /// Sends `out` to rank `to`, and overwrites `in` with the next message of rank `from`. Both run
  /// concurrently: a ring of such calls cannot deadlock. If both ranks are this one, it copies. The
  /// peer may call send(), recv() or send_recv(), or use a group(). Dtypes and numbers of elements
  /// must match as for recv().
  /// Aliasing: the tensors may overlap; `out` is then read first.
  Work send_recv(const Tensor& out, int to, const Tensor& in, int from,
                 CollectiveOptions options = {}) const;
  /// Opens a scope in which this thread's sends and receives on this communicator are collected.
  /// They run concurrently when the scope ends, as between ncclGroupStart() and ncclGroupEnd().
  /// Throws: InvalidArgument if the thread has an open scope on this communicator.
  [[nodiscard]] MessageGroup group() const;
  /// Orders work of all ranks: later work on any rank runs after all earlier work on every rank.
  /// Moves no data. The host does not wait.
  Work barrier(CollectiveOptions options = {}) const;
  /// Opens the whole storage of `tensor` to every rank. Large operations on tensors in it then need
  /// no staging: kernels and copy engines access the ranks' tensors directly. Ranks of one process
  /// need no registration: their large operations use all tensors so, unless GANTRY_COLL_OPEN=off.
  /// The tensor that counts is the only one of all_reduce, reduce and broadcast, else the input of
  /// the root. It is the output of all_gather and all_to_all, and the input of reduce_scatter; it
  /// must be at the same offset on every rank. In gather, scatter and reductions into another
  /// tensor all tensors count, and in a send its tensor, at any offset. Small operations are staged
  /// as before, and so are all if ranks cannot reach each other's memory.
  /// Collective: every rank calls it in the same order with memory of one size. Blocks the host. A
  /// later operation has registered tensors on all ranks or on none; otherwise it is a mismatch,
  /// or staged where tensors may be at any offset.
  /// After a mismatch or a loss, outputs are undefined on all ranks. Other ranks may write to them
  /// until those ranks' devices have completed their work. The group holds the memory until
  /// deregister_memory() or its end. Groups made by split() and shrink() do not have the
  /// registration.
  /// Throws, on every rank: InvalidArgument for memory of different sizes or registered already.
  /// On the rank concerned: NotSupported for memory that export_ipc() refuses; DeviceMismatchError.
  void register_memory(const Tensor& tensor) const;
  /// Closes memory that register_memory() opened. Every rank calls it between the same operations;
  /// the host does not wait. Graphs that read the memory must not be launched again. Throws:
  /// InvalidArgument if it is not registered.
  void deregister_memory(const Tensor& tensor) const;
  /// Opens the memory of `tensor` on every rank for kernels of the program: see Window.
  ///
  /// Collective: every rank calls it in the same order. Dtype, shape, layout and size of the
  /// storage are equal on all ranks. Blocks the host. Throws, on every rank: InvalidArgument for
  /// tensors that differ; NotSupported if ranks cannot reach each other's memory. On the rank
  /// concerned: NotSupported for memory that export_ipc() refuses; DeviceMismatchError.
  [[nodiscard]] Window window(const Tensor& tensor) const;
  /// Releases the group's device memory: the workspace of "p2p", 32 MiB per rank. Until resume()
  /// the group has no operations. Registered memory stays registered.
  ///
  /// Collective. Blocks the host until the operations of every rank are complete. Over other
  /// transports it releases nothing, but operations need resume() as well.
  /// Throws: InvalidArgument if the group is suspended already; PeerLostError. InvalidArgument on
  /// every rank if one of them captured an operation, whose graph uses the workspace. The same if
  /// one sent a message that was not received.
  void suspend() const;
  /// Allocates the group's device memory again after suspend().
  ///
  /// Collective. Blocks the host. Throws: InvalidArgument unless the group is suspended;
  /// OutOfMemoryError, which leaves all ranks suspended; PeerLostError.
  void resume() const;
  /// True between suspend() and resume().
  [[nodiscard]] bool is_suspended() const;
  /// Blocks the host until every rank has called it. Touches no device. Throws: PeerLostError or
  /// TimeoutError, which break the group; CollectiveMismatch on every rank if one of them makes
  /// another call of this kind.
  void host_barrier() const;
  /// Joins one byte string of every rank, in rank order, on the host. Blocks the host until every
  /// rank has called it. Throws: as host_barrier().
  [[nodiscard]] std::vector<std::string> all_gather_bytes(const std::string& bytes) const;

  /// Makes one group per `color` (0 or more) of the ranks that pass it, ordered by `key`, then
  /// rank. A rank with a negative color takes part and gets an undefined communicator. `name` is
  /// equal on the ranks of a color, see name(). Collective. Blocks the host.
  /// Throws: InvalidArgument for a bad name; as host_barrier(), also if names differ;
  /// OutOfMemoryError for the new workspaces.
  /// Example: `const Communicator half = world.split(world.rank() % 2);`
  [[nodiscard]] Communicator split(int color, int key = 0, std::string_view name = {}) const;
  /// Makes a group of the listed ranks of this group, in the order of the list. Every rank of this
  /// group calls it with the same list. The others get an undefined communicator.
  /// Throws: InvalidArgument for an empty list, or a rank that is not there or occurs twice; as
  /// above, also if lists differ.
  [[nodiscard]] Communicator split(std::span<const int> ranks, std::string_view name = {}) const;
  [[nodiscard]] Communicator split(std::initializer_list<int> ranks,
                                   std::string_view name = {}) const {
    return split(std::span(ranks.begin(), ranks.size()), name);
  }
  /// Makes a group of all ranks but `failed`, in their order, with new workspaces. Every survivor
  /// calls it with the same list, also after a PeerLostError. Blocks the host. Inputs of the failed
  /// operation are unchanged unless it was in place.
  /// Throws: InvalidArgument for a rank that the group does not have, or for this rank;
  /// PeerLostError if another rank is lost during the call. In an elastic group, see grow(), every
  /// survivor throws the same PeerLostError. Each then adds that rank to the list and calls
  /// shrink() again. Error if another survivor gives up.
  [[nodiscard]] Communicator shrink(const std::vector<int>& failed) const;
  /// Makes a group of these ranks and of replacements of lost ranks: `expected` ranks in all.
  ///
  /// For elastic groups, see connect() and world(). A supervisor starts a process for every lost
  /// rank, which joins in these calls. Every rank of an intact group calls grow(), usually after
  /// shrink(). Ranks are in the order of the job; a replacement has the rank of the lost process.
  /// Blocks the host. The new group has no registered memory. This one stays usable.
  ///
  /// `timeout`, equal on all ranks, limits the wait for replacements; 0 means that of connect(), or
  /// GANTRY_COLL_TIMEOUT. A replacement that is lost while it joins is replaced within that time.
  /// Throws, on every rank; this group stays usable: TimeoutError with the number of ranks that
  /// came; NotSupported for other groups; InvalidArgument unless `expected` is more than size() and
  /// at most the ranks of the job, for arguments that differ, and for a replacement with another
  /// version of gantry or other settings; Error while another group of the job grows; PeerLostError
  /// with the lost rank of this group; with -1 if too few ranks or no store are left, or if another
  /// process has this rank.
  [[nodiscard]] Communicator grow(int expected, std::chrono::milliseconds timeout = {}) const;
  /// False for the result of split() with a negative color and for a default-constructed one.
  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }

  /// The error that broke the group, or else that of its oldest failed operation. Null if there is
  /// none. The error stays where it is: a Work or a later call throws it as before.
  /// Device/stream: touches no device. May wait two seconds for the cause of a loss, and never for
  /// an operation.
  [[nodiscard]] std::exception_ptr failure() const noexcept;
  /// Breaks the group. Pending and later calls of every rank throw PeerLostError. Where NCCL
  /// carries data between machines, this holds for ranks of this machine. The others detect it at
  /// their deadline. Does not block the host. Has no effect on an undefined communicator.
  void abort() const noexcept;

 private:
  friend class MessageGroup;
  friend class Window;
  class GANTRY_LOCAL Impl;
  explicit Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  // `comm` has the bytes of an MPI_Comm. Throws: see the public constructor.
  static Communicator from_mpi(std::uintptr_t comm, std::optional<Device> device);
  // The group. Throws: InvalidArgument that names `member` if there is none.
  Impl& impl(std::string_view member) const;
  Work submit(CollectiveCall& call) const;
  static void mark_end(Work& work);
  Communicator split_by(std::string_view call, int color, int key, std::string_view name) const;
  bool is_own_slice(const CollectiveCall& call, const Tensor& output, const Tensor& input) const;
  Work move_between(CollectiveCall& call, const Tensor* output, const Tensor* input,
                    const CollectiveOptions& options) const;
  Work transfer(CollectiveCall& call, const Tensor* output, const Tensor* input,
                const CollectiveOptions& options) const;

  struct GANTRY_LOCAL Message;
  struct GANTRY_LOCAL OpenMessages;
  CollectiveCall call_of(const Message& message) const;
  Work post(const Message& message) const;
  Work exchange(std::string_view op, std::vector<Message> messages,
                std::shared_ptr<Work::State> state) const;

  std::shared_ptr<Impl> impl_;
};

/// Sends and receives of one thread on one communicator that start together.
///
/// @code
/// const Communicator world = Communicator::world();
/// auto messages = world.group();
/// world.send(ones({4}, world.device()), world.rank());
/// world.recv(zeros({4}, world.device()), world.rank());
/// messages.end();  // both run here
/// @endcode
///
/// Calls inside the scope only record their tensors. Contents are read and written when the scope
/// ends. Messages between the same two ranks keep their order, and all others run concurrently. No
/// order of calls inside a group can therefore deadlock. A rank may send to itself if it receives
/// as much inside the same group. A group has at most 512 messages. Each call returns the Work of
/// the whole group, which may be used once the group has ended.
///
/// Device/stream: over "p2p" the messages need 32 multiprocessors at one time. If operations of
/// three or more groups run at once, all ranks enqueue them in one order.
/// The group runs after the work of all streams that were current at its calls.
/// Later work of these streams runs after the group. A graph capture may contain it.
/// Aliasing: tensors that are sent may overlap all others, and are read first. Tensors that receive
/// may not overlap each other.
/// Thread safety: the group collects calls of its own thread only. The same thread ends it.
/// @since 0.1
class GANTRY_API MessageGroup {
 public:
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;
  /// Ends the group, unless end() has. While an exception unwinds the scope, the messages are
  /// dropped instead. An error is logged; the Work objects of the group throw it, and so does the
  /// next operation of the communicator.
  ~MessageGroup();
  /// Submits the collected messages and closes the scope, also if it throws.
  /// Throws: as send() and recv(); InvalidArgument for receiving tensors that overlap, for unpaired
  /// messages of this rank to itself, and if the group has ended.
  Work end();

 private:
  friend class Communicator;
  MessageGroup(const Communicator& communicator, std::shared_ptr<Communicator::OpenMessages> open);

  Communicator communicator_;
  std::shared_ptr<Communicator::OpenMessages> open_;
  int exceptions_;
};

}  // namespace gantry
