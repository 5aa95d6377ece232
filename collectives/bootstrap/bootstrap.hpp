#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/job/process_identity.hpp>

namespace gantry {

class ControlSegment;

// How the ranks of a job exchange small byte strings before they share memory.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  // Every rank's bytes in rank order; all ranks make the same sequence of calls.
  // Throws: PeerLostError, TimeoutError.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  // First rank that is lost, else -1. Cheap.
  virtual int lost_rank() const noexcept = 0;
  // A bootstrap of these ranks, in this order; called by them alone, with the same arguments. This
  // one stays usable. Losses of other ranks do not disturb it if it can be helped.
  // Throws: PeerLostError, TimeoutError.
  virtual std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                            std::string_view name) = 0;
  // What the group that was made over this one is to use from then on, through its own shared
  // memory; null: this one, which no other group disturbs.
  virtual std::unique_ptr<Bootstrap> move_to(const ControlSegment& /*own*/) { return nullptr; }
  // What the exchanges that follow are for; errors begin with it.
  void set_purpose(std::string_view purpose) { purpose_ = purpose; }
  // Deregisters this rank: its end is no loss. Only lost_rank() may be called afterwards.
  virtual void leave() noexcept {}

 protected:
  const std::string& purpose() const { return purpose_; }
  // "Communicator::world: rank 0 waited 3 s, but rank(s) 1 did not come (…)".
  std::string absence_text(int rank, std::chrono::milliseconds waited,
                           const std::vector<int>& missing) const;

 private:
  std::string purpose_ = "Communicator";
};

// "3 s" or "50 ms".
std::string duration_text(std::chrono::milliseconds duration);

// The bootstrap that fits the launcher: glaunch's or a user's store, MPI, or nothing for one
// process. Throws: NotSupported if this build cannot serve the launcher.
std::unique_ptr<Bootstrap> make_bootstrap(const ProcessIdentity& identity,
                                          std::chrono::milliseconds timeout);

// A bootstrap of one.
std::unique_ptr<Bootstrap> make_single_bootstrap();

// Bootstraps of `size` ranks in this process, in rank order, each for a thread of its own. A rank
// whose bootstrap is destroyed is lost to those that wait for it.
std::vector<std::unique_ptr<Bootstrap>> make_local_bootstraps(
    int size, std::chrono::milliseconds timeout = std::chrono::minutes(10));

// A bootstrap of `members` of a group, in this order, through the group's shared memory: for when a
// rank was lost and other ways throw. Called by the members alone; `generation` tells one such
// bootstrap of the group from the next: only one is used at a time. It outlives `control`. Throws:
// PeerLostError for a lost member; TimeoutError.
std::unique_ptr<Bootstrap> make_shared_memory_bootstrap(const ControlSegment& control,
                                                        const std::vector<int>& members,
                                                        std::uint64_t generation);

// A bootstrap over a key/value store; serves the store if the identity says so.
std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                std::chrono::milliseconds timeout);

// True if this build can bootstrap through MPI.
bool has_mpi();
// A bootstrap over MPI_COMM_WORLD. Initialises MPI unless the program did, and then finalises it at
// exit; if MPI_Init takes longer than `timeout`, it ends the process.
// Throws: NotSupported in a build without MPI.
std::unique_ptr<Bootstrap> make_mpi_bootstrap(std::chrono::milliseconds timeout);

}  // namespace gantry
