#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "collectives/communicator/call_ledger.hpp"
#include "collectives/communicator/members.hpp"
#include "collectives/communicator/open_group.hpp"
#include "collectives/communicator/transport_set.hpp"

namespace gantry {

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
  static std::shared_ptr<Impl> join(const ProcessIdentity& identity, Device device);
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
  OpenGroup::List open_groups;
  std::vector<std::shared_ptr<PendingSignals>> window_signals;
  std::mutex mutex;

 private:
  // Throws an error that is known to prevent an operation.
  void require_ready(CollectiveKind kind, const Stream& stream);

  bool finished_ = false;
  std::atomic<bool> is_suspended_{false};
};

}  // namespace gantry
