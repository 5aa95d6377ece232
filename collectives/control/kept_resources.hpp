// Resources of groups that have ended, until a later group takes them over or they may be freed.
#pragma once

#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "core/assert.hpp"

namespace gantry {

// Note [Freeing beside waiting kernels]
// The driver frees device memory, and unlocks pages, only after the work of other devices too. A
// kernel there may wait for the next call of this very thread: in another group, or in the
// program's own NCCL communicator. A process that holds one rank only needs no care: its thread has
// submitted all that its kernels wait for. A process with several ranks keeps what its groups used.
// The next group takes it over, so there is no more of it than groups lived at a time.
// empty_cache() frees it when no user is left that ranks of this process share.
//
// There are two lists: workspaces, and page-locked words. Their users differ. A Work object keeps
// its group's words, but not the workspace, and groups over NCCL have no workspace.

// A list of such resources. The destructor of a Resource frees it.
// Thread safety: every member may be called from any thread.
template <class Resource>
class KeptResources {
 public:
  // Begins and ends a use of such resources that ranks of this process share.
  void begin_sharing() noexcept {
    const std::lock_guard lock(mutex_);
    ++shared_;
  }
  void end_sharing() noexcept {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(shared_ > 0, "more uses of shared resources end than began");
    --shared_;
  }

  // Keeps `resource`. Without host memory for that it is lost, rather than freed too soon.
  void keep(Resource&& resource) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(resource));
    } catch (const std::bad_alloc&) {
      (void)new (std::nothrow) Resource(std::move(resource));
    }
  }

  // Returns the resource at the place that `choose(begin, end)` returns; none if that is the end.
  template <class Choose>
  std::optional<Resource> take(Choose choose) {
    const std::lock_guard lock(mutex_);
    const auto chosen = choose(kept_.begin(), kept_.end());
    if (chosen == kept_.end()) return std::nullopt;
    std::optional<Resource> taken(std::move(*chosen));
    kept_.erase(chosen);
    return taken;
  }

  // Frees the resources for which `may_be_freed` is true, unless ranks of this process share some
  // that are in use. Returns true if it freed any.
  template <class MayBeFreed>
  bool free(MayBeFreed may_be_freed) noexcept {
    std::list<Resource> ready;  // outlives the lock
    const std::lock_guard lock(mutex_);
    if (shared_ > 0) return false;
    for (auto kept = kept_.begin(); kept != kept_.end();) {
      const auto here = kept++;
      if (may_be_freed(*here)) ready.splice(ready.end(), kept_, here);
    }
    return !ready.empty();
  }

  // Calls `look` with every resource that is kept.
  template <class Look>
  void for_each(Look look) {
    const std::lock_guard lock(mutex_);
    for (Resource& resource : kept_) look(resource);
  }

 private:
  std::mutex mutex_;
  std::list<Resource> kept_;
  int shared_ = 0;  // uses that ranks of this process share now
};

}  // namespace gantry
