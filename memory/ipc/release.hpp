// Imports that were dropped and may still be used by queued work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/ipc/imports.hpp"
#include "memory/ipc/peer.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// Note [Giving back without waiting]
/// A dropped import may still be used by work on its streams. A host function on each of them
/// counts down; the last one wakes the reaper thread, which unmaps (host functions must not call
/// the driver) and then gives the reference back, in this order, so that the memory is free when
/// the exporter learns of it. A stream that has failed drops host functions, so an event stands
/// behind each, and ipc_collect() looks at those.
/// A stream that gantry does not own lives until the drop. If it is gone all the same, and that is
/// known (its handle came back, or the driver refuses it), only a synchronization of its device
/// tells that its work is done; ipc_collect() and later drops look whether there was one.
///
/// Thread safety: every member may be called from any thread.
class IpcReleases {
 public:
  [[nodiscard]] static IpcReleases& instance();

  /// Gives `slot` of `peer` back, and lets go of `extent`, when the work submitted to `streams` so
  /// far is done. Throws: std::bad_alloc, std::system_error; nothing was done then.
  void submit(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer,
              std::uint32_t slot, const std::vector<StreamClock*>& streams);
  /// Ends what is done by now; on return also what another thread was ending.
  void finish();
  /// Number of releases on `device` that are to come.
  [[nodiscard]] std::size_t pending(int device);

 private:
  struct Release;
  struct State;
  struct Marks;

  IpcReleases();
  /// Stands something behind the work of `stream` that tells when it is done.
  void mark(const std::shared_ptr<Release>& release, StreamClock& stream, Marks& marks) noexcept;
  void launch_arrival(const std::shared_ptr<Release>& release, NativeStream stream);
  void arrive(Release& release);
  /// Looks whether devices were synchronized that releases wait for.
  void settle_gone();
  void end_done();

  State& state_;
};

}  // namespace gantry::memory
