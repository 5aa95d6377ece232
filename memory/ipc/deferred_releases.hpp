// Dropped imports that queued work may still use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/ipc/importer.hpp"
#include "memory/ipc/peer.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// Note [Releasing imports without waiting]
/// Work that is queued on its streams may still use a dropped import. A host function on each
/// stream decrements a count. The last one wakes the release thread, because host functions must
/// not call the driver. The thread unmaps the extent and then releases the reference, in this
/// order: the exporter learns of the release when the memory is unmapped.
/// The thread is not the one that signals semaphores. With the backend "native" the unmapping is
/// cuIpcCloseMemHandle, which waits for every stream of the device (driver 580.159), also for
/// streams that wait for a semaphore. One thread for both would therefore hang.
/// A failed stream drops its host functions. An event is therefore recorded behind each, and
/// ipc_collect() polls these events.
/// DeferredFrees cannot serve here: it learns of completions when an allocation polls, but an
/// importer that calls gantry no more must release its references too.
/// An external stream lives until the drop. If it is nevertheless known to be destroyed (its handle
/// was reused, or the driver rejects it), only a synchronization of its device completes the work.
/// ipc_collect() and later drops check whether one took place.
///
/// Thread safety: every member may be called from any thread.
class DeferredReleases {
 public:
  [[nodiscard]] static DeferredReleases& instance();

  /// Releases `extent` and `slot` of `peer` when the work submitted to `streams` so far completes.
  /// Throws: std::bad_alloc, std::system_error; nothing was done then.
  void submit(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer,
              std::uint32_t slot, const std::vector<StreamClock*>& streams);
  /// Performs the releases whose work is complete. Returns after those that another thread began.
  void run_completed();
  /// Returns the number of releases on `device` whose work is not complete.
  [[nodiscard]] std::size_t pending(int device);

 private:
  struct Release;
  struct State;
  struct Completions;

  DeferredReleases();
  /// Adds what tells the completion of the work on `stream`.
  void add_completion(const std::shared_ptr<Release>& release, StreamClock& stream,
                      Completions& completions) noexcept;
  void launch_host_function(const std::shared_ptr<Release>& release, NativeStream stream);
  void complete_one(Release& release);
  /// Completes the work on destroyed streams whose devices were synchronized.
  void poll_destroyed_streams();
  void perform_ready();

  State& state_;
};

}  // namespace gantry::memory
