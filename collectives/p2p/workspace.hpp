#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/protocol/layout.hpp"

namespace gantry {

// Device memory of one size on every rank, zeroed, and each open on every other rank.
class Workspace {
 public:
  // Collective over `bootstrap`; blocks the host until every rank has opened everything.
  // Throws: OutOfMemoryError, CudaError, PeerLostError.
  Workspace(Bootstrap& bootstrap, int rank, int size, int device,
            std::size_t bytes = protocol::kWorkspaceBytes);

  // A rank's memory, as this rank's device addresses it.
  std::byte* of(int rank) const;

 private:
  // A rank's memory as one process has it: its own, or opened from another process. Ranks of one
  // process share it, because a peer may still read when its owner is gone.
  struct Memory;
  // What a rank tells the others.
  struct Offer;

  std::shared_ptr<Memory> open(const Offer& offer, int peer, int device) const;

  std::vector<std::shared_ptr<Memory>> memory_;
};

}  // namespace gantry
