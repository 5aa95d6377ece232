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
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "collectives/bootstrap/joining.hpp"
#include "collectives/communicator/least_call.hpp"
#include "collectives/control/call_faults.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/p2p/registrations.hpp"
#include "collectives/rank_table.hpp"
#include "collectives/selector.hpp"
#include "collectives/transport.hpp"
#include "device/drivers/fault_source.hpp"

namespace gantry {

class PendingSignals;

// The state of one group on this rank: its membership and its transports.
class Communicator::Impl final : public FaultSource,
                                 public std::enable_shared_from_this<Communicator::Impl> {
 public:
  // The constructor's arguments.
  struct Seed {
    ProcessIdentity identity;
    Device device;
    std::unique_ptr<Bootstrap> bootstrap;
    std::string name;
    std::string maker;        // the public function, for error texts
    JobGroup job_group = {};  // without a connection: that of the bootstrap
  };

  // Collective. Throws: see Communicator::world().
  explicit Impl(Seed seed);
  ~Impl() override;

  // Numbers the call and enqueues it. Requires: `mutex` held.
  End run(CollectiveCall& call, const Stream& stream);
  // As run(), for concurrent sends and receives; at least one. Their numbers
  // follow each other.
  End run_together(std::span<CollectiveCall> calls, const Stream& stream);
  // The open group() of the calling thread; null: none.
  [[nodiscard]] std::shared_ptr<OpenGroup> open_group() const;
  // Throws: InvalidArgument if the calling thread has an open group.
  void open(std::shared_ptr<OpenGroup> group);
  void close(const OpenGroup& group) noexcept;
  // Throws: InvalidArgument if the calling thread has an open group that cannot
  // collect `kind`.
  void require_no_open_group(CollectiveKind kind) const;
  // Makes the next operation throw `error`, which a group's destructor caught.
  void fail_next(std::exception_ptr error) noexcept;
  // Makes a group of some of this group's ranks, this rank included. Collective
  // over `ranks`.
  std::shared_ptr<Impl> subgroup(const std::vector<int>& ranks, const std::string& group,
                                 std::unique_ptr<Bootstrap> boot, const std::string& maker) const;
  // Throws the error of a failed call up to `call`. If `pending`, also throws
  // if the group is broken.
  void check(std::uint64_t call, bool pending);
  // Makes pending and later calls of every rank throw PeerLostError.
  void abort() noexcept;
  // Stops device calls from throwing the loss of this group, which the caller
  // knows.
  void abandon() noexcept { loss_is_known_ = true; }
  // Makes a subgroup with `make`, and agrees with its other ranks on the
  // outcome. For elastic jobs. Throws, on every rank of it: PeerLostError with
  // the rank, in this group, that was lost.
  std::shared_ptr<Impl> agree_on_subgroup(const std::vector<int>& ranks, const std::string& group,
                                          const std::function<std::shared_ptr<Impl>()>& make);
  // Makes a group of `expected` ranks: this group's and replacements. For
  // elastic jobs. Requires: `mutex` held.
  std::shared_ptr<Impl> grow(int expected, std::chrono::milliseconds timeout);
  // Waits for the other ranks' hosts in `call`, and compares the calls. Between
  // machines the exchange that follows does this instead. Requires: `mutex`
  // held. Throws: InvalidArgument naming both calls if another rank makes
  // another call; PeerLostError; TimeoutError.
  void rendezvous(HostCall call);
  // Gives the device memory between the ranks back, and takes it again.
  // Collective. Requires: `mutex` held. Throws: see Communicator.
  void suspend();
  void resume();
  [[nodiscard]] bool is_suspended() const { return is_suspended_; }
  // Ends this rank's work in the group. Closes the other ranks' memory, and
  // waits with a timeout until they have closed this rank's memory. Afterwards
  // only check() may be called.
  void finish() noexcept;
  // Returns the handle of communicators. When the last one is destroyed, this
  // rank leaves the group. Only the state that Work objects need stays.
  static std::shared_ptr<Impl> until_left(std::shared_ptr<Impl> impl);
  // Makes the group of the ranks of a communicator of the program; the handle
  // of until_left().
  static std::shared_ptr<Impl> adopt(ForeignBootstrap ranks, ProcessIdentity identity,
                                     Device device, const char* name, const char* maker);
  // Makes the group that a replacement process of an elastic job joins. Throws:
  // as Communicator::world().
  static std::shared_ptr<Impl> join(const ProcessIdentity& identity, Device device);
  // Makes the group of a formation, and agrees with its other members. Null if
  // a member failed; `outcomes` are the members' then. Throws this rank's own
  // error, if it is no other rank's fault.
  static std::shared_ptr<Impl> form(const JobGroup& group, std::int64_t number, Device device,
                                    const ProcessIdentity& identity, const std::string& maker,
                                    std::vector<std::string>& outcomes);

  int fault_device() const noexcept override { return membership.device.index; }
  // Once the caller knows that the group is lost, later failed calls are not
  // reported.
  bool has_fault() const noexcept override {
    return control && (control->has_fault() || faults_.has_unreported()) &&
           !(loss_is_known_ && control->broken());
  }
  void raise_fault() override;

  ProcessIdentity identity;
  Membership membership;
  std::string name;
  std::optional<RankTable> ranks;              // after the constructor
  JobGroup job_group;                          // without a connection if there is no store
  std::unique_ptr<Bootstrap> first_bootstrap;  // the bootstrap of `control`, if it is another one
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<ControlSegment> control;  // null with one rank, or ranks on several machines
  std::unique_ptr<Transport> p2p;           // null if ranks cannot reach each other's memory
  std::unique_ptr<Transport> nccl;
  std::unique_ptr<Transport> host;
  std::vector<std::shared_ptr<PendingSignals>> window_signals;
  Registrations registrations;  // used without p2p, which has its own registrations
  std::mutex mutex;
  // The numbers of groups made from this one. After a loss, ranks may have
  // begun different numbers of splits, so shrinks are counted separately.
  int splits = 0;
  int shrinks = 0;
  int grows = 0;

 private:
  [[noreturn]] void raise_no_growth(const GrowPlan& plan) const;
  // Exchanges and compares the ranks' settings. Throws: InvalidArgument.
  void exchange_facts();
  void make_transports();
  // Throws if the group is lost.
  void require_intact();
  // Throws the error of fail_next() once.
  void raise_next_failure();
  // Throws an error that is known to prevent an operation.
  void require_ready(CollectiveKind kind, const Stream& stream);
  // Runs `submit`, and aborts on the other ranks if it throws.
  template <class Submit>
  void guarded(const Descriptor& what, Submit submit);
  // Finds what follows from the call: the only place that asks the selector.
  ResolvedCall resolve(const CollectiveCall& call);
  // Writes the call to the flight recorder. Returns its transport, for which
  // NCCL may start.
  Transport& begin(const ResolvedCall& call, const Stream& stream, bool is_grouped = false);
  void start_nccl(const ResolvedCall& call);
  // Loads NCCL on all ranks at the first call, and returns true if all have it.
  // Collective.
  bool agree_on_nccl();
  // True if GANTRY_COLL_ALGO is nccl and all ranks have NCCL.
  bool forces_nccl() const;
  // Moves the control segment's pending fault to faults_, if there is one.
  // Returns its call.
  std::optional<std::uint64_t> take_fault();

  std::chrono::milliseconds timeout_;
  Selector selector_;
  bool one_machine_ = true;
  bool agreed_on_nccl_ = false;
  bool listed_ = false;
  bool finished_ = false;
  std::atomic<bool> is_suspended_{false};
  std::atomic<bool> loss_is_known_{false};
  LeastCall first_lost_;  // calls from this one on failed
  LeastCall first_mismatch_;
  std::uint64_t calls_ = 0;
  std::uint64_t messages_ = 0;
  const Transport* last_transport_ = nullptr;  // of the last call that was not run_together()
  std::vector<std::string> old_registers_;     // of the last grow(), written by this rank
  mutable std::mutex open_mutex_;              // guards the following members
  std::vector<std::shared_ptr<OpenGroup>> open_groups_;
  std::exception_ptr next_failure_;
  std::atomic<bool> has_open_groups_{false};
  std::atomic<bool> has_next_failure_{false};
  CallFaults faults_;
};

// Returns GANTRY_COLL_TIMEOUT.
std::chrono::milliseconds collective_timeout();

}  // namespace gantry
