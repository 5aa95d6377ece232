#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/call_faults.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/p2p/registrations.hpp"
#include "collectives/selector.hpp"
#include "collectives/transport.hpp"
#include "device/fault_source.hpp"

namespace gantry {

// The members of one group on this rank, and what carries their data.
class Communicator::Impl final : public FaultSource,
                                 public std::enable_shared_from_this<Communicator::Impl> {
 public:
  // What a group is made of.
  struct Seed {
    ProcessIdentity identity;
    Device device;
    std::unique_ptr<Bootstrap> bootstrap;
    std::string name;
    std::string maker;  // the function that errors of making it name
  };

  // Collective. Throws: see Communicator::world().
  explicit Impl(Seed seed);
  ~Impl() override;

  struct Submitted {
    std::uint64_t call;
    bool tells_losses;           // see Transport
    std::shared_ptr<Event> end;  // likewise
  };
  // Numbers the call and enqueues it. `mutex` is held.
  Submitted run(CollectiveCall& call, const Stream& stream);
  // The same of sends and receives that run side by side; at least one. `call` is the last one's.
  Submitted run_together(std::span<CollectiveCall> calls, const Stream& stream);
  // The group() that the calling thread has open; null: none.
  [[nodiscard]] std::shared_ptr<OpenGroup> open_group() const;
  // Throws: InvalidArgument if the calling thread has one.
  void open(std::shared_ptr<OpenGroup> group);
  void close(const OpenGroup& group) noexcept;
  // Throws: InvalidArgument if `kind` cannot be collected by the calling thread's open group.
  void require_no_open_group(CollectiveKind kind) const;
  // Makes the next operation throw `error`, for a group whose destructor could not.
  void fail_next(std::exception_ptr error) noexcept;
  // The group of some of this one's ranks, this one's among them. Collective among them.
  std::shared_ptr<Impl> subgroup(const std::vector<int>& ranks, const std::string& group,
                                 std::unique_ptr<Bootstrap> boot, const std::string& maker) const;
  // Throws what became of a call up to `call` if it failed, or if the group is broken and
  // `pending`.
  void check(std::uint64_t call, bool pending);
  // The caller gives the group up: if it is lost, that is raised no more by calls of the device.
  void abandon() noexcept { loss_is_known_ = true; }
  // Meets the other ranks for a call in which hosts wait for each other; `mutex` is held. Between
  // machines, where nobody can look at what others do, it leaves that to the exchange that follows.
  // Throws: InvalidArgument naming both calls if another rank does something else; PeerLostError;
  // TimeoutError.
  void rendezvous(HostCall call);
  // Ends this rank's work in the group: closes the others' memory, and waits for a time until they
  // have closed this one's. No operation is possible any more; check() is.
  void finish() noexcept;
  // What communicators hold: when the last of them is gone the group is left, and only what Work
  // objects ask about stays.
  static std::shared_ptr<Impl> until_left(std::shared_ptr<Impl> impl);

  int fault_device() const noexcept override { return membership.device.index; }
  // Once the caller knows that the group is lost, calls that still end without a result are no
  // news.
  bool has_fault() const noexcept override {
    return control && (control->has_fault() || faults_.has_news()) &&
           !(loss_is_known_ && control->broken());
  }
  void raise_fault() override;

  ProcessIdentity identity;
  Membership membership;
  std::string name;
  std::vector<std::string> device_map;
  std::unique_ptr<Bootstrap> first_bootstrap;  // which `control` was made over, if it is another
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<ControlSegment> control;  // null with one rank, or ranks on several machines
  std::unique_ptr<Transport> p2p;           // null if ranks cannot reach each other's memory
  std::unique_ptr<Transport> nccl;
  std::unique_ptr<Transport> host;
  Registrations registrations;  // without p2p, which has its own, and opens them on all ranks
  std::mutex mutex;
  // Groups made of this one. Where a rank is lost, the others may have begun different numbers of
  // splits, so what they make next is counted by itself.
  int splits = 0;
  int shrinks = 0;

 private:
  // What ranks agree on before they share anything. Throws: InvalidArgument.
  void exchange_facts();
  void make_transports();
  // Throws if the group is lost.
  void require_intact();
  // Throws what fail_next() was given, once.
  void raise_next_failure();
  // Throws what is known to prevent an operation.
  void require_ready(CollectiveKind kind);
  // Runs `submit`, and tells the other ranks if it throws.
  template <class Submit>
  void guarded(const Descriptor& what, Submit submit);
  Transport& transport_for(const CollectiveCall& call);
  Transport& start_nccl(const CollectiveCall& call);
  // True if GANTRY_COLL_ALGO says nccl, and there is NCCL.
  bool forces_nccl() const;
  // Writes the call into the flight record, once.
  void record(const CollectiveCall& call, Algorithm algorithm);
  // Moves that fault to those of this communicator, if there is one; returns its call.
  std::optional<std::uint64_t> take_fault();

  std::chrono::milliseconds timeout_;
  Selector selector_;
  std::vector<std::string> machines_;  // by rank
  bool one_machine_ = true;
  bool listed_ = false;
  bool finished_ = false;
  std::atomic<bool> loss_is_known_{false};
  std::atomic<std::uint64_t> first_lost_{UINT64_MAX};  // calls from here on did not end well
  std::atomic<std::uint64_t> first_mismatch_{UINT64_MAX};
  std::uint64_t calls_ = 0;
  std::uint64_t messages_ = 0;
  std::int64_t recorded_ = 0;
  mutable std::mutex open_mutex_;  // guards what follows
  std::vector<std::shared_ptr<OpenGroup>> open_groups_;
  std::exception_ptr next_failure_;
  std::atomic<bool> has_open_groups_{false};
  std::atomic<bool> has_next_failure_{false};
  CallFaults faults_;
};

// The device of a process with this identity: the only visible one, the one that the launcher
// named, or by local rank. Throws: InvalidArgument.
Device choose_device(const ProcessIdentity& identity);
// GANTRY_COLL_TIMEOUT.
std::chrono::milliseconds collective_timeout();

}  // namespace gantry
