// Page-locked words of groups that have ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/control/kept_resources.hpp"
#include "job/flight_file.hpp"

namespace gantry {

class ControlFile;

// The mappings of control files whose groups have ended, with one rank's words page-locked in each.
// See Notes [Freeing beside waiting kernels] and [Files that are taken over].
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
  void leave() noexcept { kept_.end_sharing(); }
  // True since the first group that has several ranks in this process.
  [[nodiscard]] bool has_several_ranks() const noexcept { return has_several_ranks_; }

  // Unlocks the words of `rank` now, or keeps them.
  void release(std::shared_ptr<ControlFile> file, int rank) noexcept;
  // Takes rank 0's mapping of a file that a group of `ranks` ranks may take over; null: none.
  std::shared_ptr<ControlFile> take_file(int ranks);
  // Takes the mapping by `rank` of the file that take_file() returned; null if it is not kept.
  std::shared_ptr<ControlFile> take_mapping(std::uint64_t file, int rank);

 private:
  struct Kept {
    Kept(std::shared_ptr<ControlFile> file, int rank) : file(std::move(file)), rank(rank) {}
    Kept(Kept&&) = default;
    Kept& operator=(Kept&&) = delete;
    ~Kept();
    [[nodiscard]] bool is_unused() const;
    std::shared_ptr<ControlFile> file;
    int rank;
  };

  LockedWords();

  std::atomic<bool> has_several_ranks_{false};
  KeptResources<Kept> kept_;
};

}  // namespace gantry
