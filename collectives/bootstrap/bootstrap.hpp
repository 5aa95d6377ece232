#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/bootstrap/job_connection.hpp"

struct ncclComm;  // NCCL's ncclComm_t points to it

namespace gantry {

class ControlSegment;

// The version of what ranks tell each other when they make a group.
inline constexpr const char* kGroupVersion = "gantry-10";

// The exchange of small byte strings between the ranks of a job, before they share memory.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // Gathers every rank's bytes in rank order. All ranks make the same sequence of calls.
  // Throws: PeerLostError, TimeoutError.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  // The first lost rank, else -1. Cheap. Most bootstraps leave the detection of losses to others:
  // to mpirun, or to the watchdog of a group on one machine.
  virtual int lost_rank() const noexcept { return -1; }
  // Makes a bootstrap of `members`, in this order. Only they call this, with the same arguments.
  // This bootstrap stays usable. If possible, losses of other ranks do not affect the subset.
  // Throws: PeerLostError, TimeoutError.
  virtual std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                            std::string_view name) = 0;
  // Returns the bootstrap that the group made over this one uses from now on, through its own
  // control segment. Null: the group keeps this bootstrap.
  virtual std::unique_ptr<Bootstrap> move_to(const ControlSegment& /*own*/) { return nullptr; }
  // The processes of the ranks in the job's store; no connection if there is no store.
  virtual JobGroup job_group() const { return {}; }
  // Sets the purpose of later exchanges; errors begin with it.
  void set_purpose(std::string_view purpose) { purpose_ = purpose; }
  // Sets what sets the deadline, for errors.
  void set_deadline_source(std::string_view source) { deadline_source_ = source; }
  // Deregisters this rank: its end is not a loss. Only lost_rank() may be called afterwards.
  virtual void leave() noexcept {}

 protected:
  const std::string& purpose() const { return purpose_; }
  // "Communicator::world: rank 0 waited 3 s, but rank(s) 1 did not come (…)".
  std::string absence_text(int rank, std::chrono::milliseconds waited,
                           const std::vector<int>& missing) const;
  // The entries of `all`, which is in rank order, for the members of a subset.
  template <class Entry>
  static std::vector<Entry> entries_of(const std::vector<Entry>& all,
                                       const std::vector<int>& members) {
    std::vector<Entry> some;
    for (const int member : members) some.push_back(all.at(static_cast<std::size_t>(member)));
    return some;
  }
  // The rank in a subset of a rank that is a member of it.
  static int rank_among(const std::vector<int>& members, int rank);
  // A bootstrap through the control segment of the group of `size` ranks, for the same purpose.
  std::unique_ptr<Bootstrap> through(const ControlSegment& own, std::size_t size) const;

 private:
  std::string purpose_ = "Communicator";
  std::string deadline_source_ = "GANTRY_COLL_TIMEOUT sets the deadline";
};

// "3 s" or "50 ms".
std::string duration_text(std::chrono::milliseconds duration);

// Makes the bootstrap for the launcher: a store of glaunch or of the user, MPI, or none for one
// process. Throws: NotSupported if this build does not support the launcher.
std::unique_ptr<Bootstrap> make_bootstrap(const ProcessIdentity& identity,
                                          std::chrono::milliseconds timeout);

// Makes the bootstrap of a single rank.
std::unique_ptr<Bootstrap> make_single_bootstrap();

// Makes bootstraps of `size` ranks in this process, in rank order, one per thread. A rank whose
// bootstrap is destroyed is lost to the ranks that wait for it.
std::vector<std::unique_ptr<Bootstrap>> make_local_bootstraps(
    int size, std::chrono::milliseconds timeout = std::chrono::minutes(10));

// Makes a bootstrap of `members` of a group, in this order, through the group's control segment. It
// works after the loss of a rank, when other bootstraps throw. Only the members call this.
// `generation` numbers such bootstraps of the group; only one is used at a time. It may outlive
// `control`. Throws: PeerLostError for a lost member; TimeoutError.
std::unique_ptr<Bootstrap> make_shared_memory_bootstrap(const ControlSegment& control,
                                                        const std::vector<int>& members,
                                                        std::uint64_t generation);

// Makes a bootstrap over a key/value store. `role` tells who serves it.
std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                const StoreRole& role,
                                                std::chrono::milliseconds timeout);
// Makes a bootstrap of the `size` ranks of a job's start, which `job` connects.
std::unique_ptr<Bootstrap> make_store_bootstrap(std::shared_ptr<JobConnection> job, int size);
// As the first, in the role that the variables of a launcher give.
inline std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                       std::chrono::milliseconds timeout) {
  return make_store_bootstrap(identity, StoreRole::of(identity), timeout);
}

// The outcome of a rank that formed its group.
inline constexpr const char* kFormed = "ok";
// Makes a bootstrap of a new group of processes of a job. The group forms at the key `formation`,
// where its members agree() on the outcome. Only they call this.
std::unique_ptr<Bootstrap> make_formation_bootstrap(const JobGroup& group,
                                                    const std::string& formation);

// True if MPI can be used. Loads it.
bool has_mpi();
// Makes a bootstrap over MPI_COMM_WORLD. Initializes MPI, and finalizes it at exit, unless the
// program initialized it. If MPI_Init takes longer than `timeout`, this ends the process. Throws:
// NotSupported if MPI cannot be loaded; InvalidArgument if MPI has another place or number of ranks
// than `identity`, as a process without mpirun has it.
std::unique_ptr<Bootstrap> make_mpi_bootstrap(const ProcessIdentity& identity,
                                              std::chrono::milliseconds timeout);

// A bootstrap over a communicator of the program, with this rank's place there.
struct ForeignBootstrap {
  std::unique_ptr<Bootstrap> bootstrap;
  int rank = 0;
  int size = 1;
  std::string label = {};                    // the name of the group; empty: none
  std::optional<GroupTimeout> timeout = {};  // none: GANTRY_COLL_TIMEOUT
};
// Makes a bootstrap over a duplicate of an MPI communicator, whose bytes `comm` has. Collective.
// Throws: InvalidArgument unless MPI and `comm` are in use; NotSupported; TimeoutError.
ForeignBootstrap make_mpi_bootstrap(std::uintptr_t comm, std::chrono::milliseconds timeout);
// Makes a bootstrap over an NCCL communicator of `device`, which must outlive it. Collective.
// Throws: InvalidArgument for one of another device; NotSupported without NCCL; NcclError.
ForeignBootstrap make_nccl_bootstrap(ncclComm* comm, Device device,
                                     std::chrono::milliseconds timeout);

}  // namespace gantry
