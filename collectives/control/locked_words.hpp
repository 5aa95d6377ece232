// Page-locked words of groups that have ended.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/control/file.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// Note [Unlocking words]
// Unlocking pages waits for all devices of the process. If several ranks are in one process, that
// can deadlock: a kernel of one rank may wait, in another group or in the program's own NCCL
// communicator, for the thread that is leaving this group. So such a process keeps released words
// page-locked and mapped. empty_cache() unlocks them when no group is left that has several ranks
// in this process.
//
// Thread safety: every member may be called from any thread.
class LockedWords {
 public:
  // Never destroyed: groups may outlive static objects.
  static LockedWords& instance();

  // Unlocks a rank's words while they are mapped: a later mapping at the same address could not be
  // page-locked otherwise.
  static void unlock(const flight::View& view, int rank) noexcept;

  // Registers a rank of a group that has several ranks in this process.
  void join() noexcept;
  // Deregisters one.
  void leave() noexcept;
  // True since the first group that has several ranks in this process.
  [[nodiscard]] bool has_several_ranks() noexcept;
  // Unlocks the words of `rank` now, or keeps them.
  void release(std::shared_ptr<ControlFile> file, int rank) noexcept;

 private:
  struct Entry {
    std::shared_ptr<ControlFile> file;
    int rank;
  };

  LockedWords();
  // Unlocks all that is kept unless a registered group exists. True if there was any.
  bool unlock_kept() noexcept;

  std::mutex mutex_;
  int members_ = 0;
  bool has_several_ranks_ = false;
  std::vector<Entry> entries_;
};

}  // namespace gantry
