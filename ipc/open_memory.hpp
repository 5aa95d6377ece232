// Memory of this process that a group of other processes has mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gantry/memory/allocator.hpp>

#include "ipc/mirror_place.hpp"

namespace gantry::memory {

/// One member's memory that the other members of a group have mapped: see Note [Mirrors].
///
/// Before an operation, a member looks up where the others have an array. The first time nobody has
/// it. A background thread then offers the chunks of the array's block to all others, and later
/// operations find it. The thread withdraws chunks when they leave their addresses. Chunks
/// that a member cannot map are withdrawn from all members, and not offered again. Once a member is
/// lost, nothing is offered any more.
///
/// Members of the owner's process need no mirror: they use the owner's addresses.
///
/// Note [Open memory in graphs]
/// A graph keeps the addresses of its capture. So a capture waits until the others have mapped its
/// arrays. The addresses are kept from then on: when chunks are mapped there again, as by
/// MemPool::restore_physical(), they are usable only once the others have mapped them, too.
///
/// Thread safety: every member may be called from any thread.
class OpenMemory {
 public:
  enum class Use : std::uint8_t { now, in_graph };

  /// The memory of member `rank` of the group with these `places`, in rank order. Throws:
  /// std::bad_alloc.
  OpenMemory(int rank, std::vector<MirrorPlace> places);
  /// Does not wait for the thread. The members unmap what is left when they close their mirrors.
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

  /// Writes where each member has the `bytes` at `data` of a live `block`, by rank. False, and
  /// nothing written, if a member has not mapped them: then they are offered, if they can be.
  /// Waits for the others only for use in a graph, 10 s at most. Throws: std::bad_alloc,
  /// std::system_error.
  [[nodiscard]] bool find(const Block& block, const void* data, std::size_t bytes, Use use,
                          std::span<std::byte*> addresses);

 private:
  class State;
  class Registry;
  const std::shared_ptr<State> state_;
};

}  // namespace gantry::memory
