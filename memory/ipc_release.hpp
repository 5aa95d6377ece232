// Imports that were dropped and may still be used by queued work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gantry/streams/stream.hpp>

#include "memory/ipc_imports.hpp"
#include "memory/ipc_peer.hpp"

namespace gantry::memory {

/// Note [Giving back without waiting]
/// A dropped import may still be used by work on its streams. A host function on each of them
/// counts down; the last one wakes the reaper thread, which unmaps (host functions must not call
/// the driver) and then gives the reference back, in this order, so that the memory is free when
/// the exporter learns of it. A stream that has failed drops host functions, so an event stands
/// behind each, and ipc_collect() looks at those.
///
/// Thread safety: every member may be called from any thread.
class IpcReleases {
 public:
  [[nodiscard]] static IpcReleases& instance();

  /// Gives `slot` of `peer` back, and lets go of `extent`, when the work submitted to `streams` so
  /// far is done. Throws: std::bad_alloc, std::system_error; nothing was done then.
  void submit(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer,
              std::uint32_t slot, const std::vector<Stream>& streams);
  /// Ends what is done by now; on return also what another thread was ending.
  void finish();
  /// Number of releases on `device` that are to come.
  [[nodiscard]] std::size_t pending(int device);

 private:
  struct Release;
  struct State;

  IpcReleases();
  void mark(const std::shared_ptr<Release>& release, NativeStream stream,
            std::vector<NativeEvent>& events, std::size_t& marks);
  void arrive(Release& release);
  void end_done();

  State& state_;
};

}  // namespace gantry::memory
