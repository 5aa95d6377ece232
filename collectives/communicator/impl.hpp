#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/collectives/work.hpp>
#include <gantry/job/process_identity.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "collectives/communicator/call_ledger.hpp"
#include "collectives/communicator/members.hpp"
#include "collectives/communicator/transport_set.hpp"
#include "collectives/protocol/plan.hpp"
#include "collectives/selection/descriptor.hpp"

namespace gantry {

class CallLedger;

// The shared state of the handles of one operation.
struct Work::State {
  Device device;
  std::shared_ptr<Event> done;
  // The stream of a call that was captured into a graph, where `done` is recorded in the capture.
  std::optional<Stream> captured_on{};
  std::uint64_t capture = 0;  // Driver::capture_id of that capture
  // The calls of the operation, which have consecutive numbers, in the ledger of their group; null:
  // no other rank takes part.
  std::shared_ptr<CallLedger> ledger;
  std::uint64_t first_call = 0;
  std::uint64_t last_call = 0;
  bool reports_losses = true;  // see End
  std::exception_ptr failure;  // of an operation that was not submitted
  bool is_open = false;        // its group() scope is open

  // Throws the error of the operation, if it failed. `pending`: it still runs.
  void check(bool pending) const;
  // Marks the end of the call in `stream`, also in a capture.
  void mark_end(const Stream& stream);
  // True while the capture of the call goes on.
  [[nodiscard]] bool is_in_capture() const;
};

// A send or receive whose own arguments are checked.
struct Communicator::Message {
  CollectiveKind kind;
  Tensor tensor;
  int peer;
  CollectiveOptions options;
  Stream stream;  // the current stream at the call
};

// The messages of an open group() scope.
// Thread safety: only its thread uses it.
struct Communicator::OpenMessages {
  class List;

  std::thread::id thread;
  std::vector<Message> messages;
  std::shared_ptr<Work::State> state;  // of every Work that its calls return
};

// The open groups of one communicator, one per thread at most, and the error of the last one.
// Thread safety: any thread.
class Communicator::OpenMessages::List {
 public:
  // The group of the calling thread; null: none.
  [[nodiscard]] std::shared_ptr<OpenMessages> mine() const;
  // Throws: InvalidArgument if the calling thread has an open group.
  void open(std::shared_ptr<OpenMessages> group);
  void close(const OpenMessages& group) noexcept;
  // Throws: InvalidArgument if the calling thread has an open group that cannot collect `kind`.
  void require_none(CollectiveKind kind) const;
  // Makes the next operation throw `error`, which a group's destructor caught.
  void fail_next(std::exception_ptr error) noexcept;
  // Throws the error of fail_next() once.
  void raise_failure();

 private:
  mutable std::mutex mutex_;  // guards the next two members
  std::vector<std::shared_ptr<OpenMessages>> open_;
  std::exception_ptr failure_;
  // Whether they are set: operations look without the lock.
  std::atomic<bool> has_open_{false};
  std::atomic<bool> has_failure_{false};
};

class PendingSignals;

// One group on this rank, as its communicators and Work objects share it.
class Communicator::Impl final : public std::enable_shared_from_this<Communicator::Impl> {
 public:
  // Collective. Throws: see Communicator::world().
  explicit Impl(GroupSeed seed);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Returns the handle of communicators. When the last one is destroyed, this rank leaves the
  // group. Only the state that Work objects need stays.
  static std::shared_ptr<Impl> until_left(std::shared_ptr<Impl> impl);
  // Makes the group of the ranks of a communicator of the program; the handle of until_left().
  static std::shared_ptr<Impl> adopt(ForeignBootstrap ranks, ProcessIdentity identity,
                                     Device device, const char* name, const char* maker);
  // Makes the group that a replacement process of an elastic job joins. Throws: as
  // Communicator::world().
  static std::shared_ptr<Impl> join(std::shared_ptr<JobConnection> job,
                                    const ProcessIdentity& identity, Device device);
  // Enters an elastic job without a launcher: makes its first group, or joins a later one. `start`
  // has the facts of the process. Throws: as Communicator::connect().
  static std::shared_ptr<Impl> enter(std::shared_ptr<JobConnection> job, GroupSeed start);
  // Makes the group of a formation, and agrees with its other members. Null if a member failed;
  // `outcomes` are the members' then. Throws this rank's own error, if it is no other rank's fault.
  static std::shared_ptr<Impl> form(const JobGroup& group, std::int64_t number, Device device,
                                    const ProcessIdentity& identity, const std::string& maker,
                                    std::vector<std::string>& outcomes);
  // Makes a subgroup with `make`, and agrees with its other ranks on the outcome. For elastic jobs.
  // Throws, on every rank of it: PeerLostError with the rank, in this group, that was lost.
  std::shared_ptr<Impl> agree_on_subgroup(const std::vector<int>& ranks, const std::string& group,
                                          const std::function<std::shared_ptr<Impl>()>& make);
  // Makes a group of `expected` ranks: this group's and replacements. For elastic jobs. Requires:
  // `mutex` held.
  std::shared_ptr<Impl> grow(int expected, std::chrono::milliseconds timeout);

  // Numbers the call and enqueues it. Requires: `mutex` held.
  End run(CollectiveCall& call, const Stream& stream);
  // As run(), for concurrent sends and receives; at least one. Their numbers follow each other.
  End run_together(std::span<CollectiveCall> calls, const Stream& stream);
  // Throws: CaptureError unless `stream`, which is in a body, is the body's own.
  static void require_body_stream(std::string_view op, const Stream& stream);
  // Behind the submission of work in a body, that waits for other ranks: Note [Operations in
  // conditions]. `is_collective`: all ranks have the condition.
  void note_in_condition(const Stream& stream, bool is_collective);
  // Waits for the other ranks' hosts in `call`, and compares the calls. Between machines the
  // exchange that follows does this instead. Requires: `mutex` held. Throws: InvalidArgument naming
  // both calls if another rank makes another call; PeerLostError; TimeoutError.
  void rendezvous(HostCall call);
  // Gives the device memory between the ranks back, and takes it again. Collective. Requires:
  // `mutex` held. Throws: see Communicator.
  void suspend();
  void resume();
  [[nodiscard]] bool is_suspended() const { return is_suspended_; }
  // Makes pending and later calls of every rank throw PeerLostError.
  void abort() noexcept;
  // Ends this rank's work in the group. Closes the other ranks' memory, and waits with a timeout
  // until they have closed this rank's memory. Afterwards only the ledger may be asked.
  void finish() noexcept;

  // Keeps the group's state.
  std::shared_ptr<CallLedger> shared_ledger() { return {shared_from_this(), &ledger}; }

  Members members;
  TransportSet transports{members};
  CallLedger ledger{members, transports};
  OpenMessages::List open_messages;
  std::vector<std::shared_ptr<PendingSignals>> window_signals;
  std::mutex mutex;

 private:
  // Throws an error that is known to prevent an operation.
  void require_ready(CollectiveKind kind, const Stream& stream);
  void require_in_condition(CollectiveKind kind, const Stream& stream) const;

  bool finished_ = false;
  std::atomic<bool> is_suspended_{false};
};

}  // namespace gantry
