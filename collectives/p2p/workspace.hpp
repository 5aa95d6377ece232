#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/p2p/workspace_memory.hpp"
#include "collectives/protocol/layout.hpp"

namespace gantry {

class ControlSegment;

// Device memory of one size on every rank, zeroed, and each open on every other rank.
//
// Note [Closing before freeing]
// Memory that another process has opened must not be freed. Otherwise the driver may give its
// addresses and its handle to the next allocation while the old import still exists. Ranks
// therefore close their imports, report this in the control segment, and free their own memory when
// all have reported. A rank may never report: it keeps a broken communicator, or the timeout has
// expired. The others do not wait for it. They keep the memory that the rank may have open, and a
// later workspace frees it once it is closed.
class Workspace {
 public:
  // Collective over `bootstrap`; blocks the host until every rank has opened everything.
  // Throws: OutOfMemoryError, CudaError, PeerLostError.
  Workspace(Bootstrap& bootstrap, const ControlSegment& control, int device,
            std::size_t bytes = protocol::kWorkspaceBytes);
  // Closes, then frees this rank's memory or keeps it for the next workspace.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Closes the other ranks' memory: of() gives only this rank's from now on.
  void close() noexcept;
  // Closes and frees everything; collective. Throws: PeerLostError, TimeoutError.
  void give_back(Bootstrap& bootstrap);

  // A rank's memory, as this rank's device addresses it.
  std::byte* of(int rank) const;
  // True if all links deliver the stores of an LL128 line in order: see Note [LL and LL128]. Equal
  // on all ranks.
  bool keeps_ll128_order() const { return keeps_ll128_order_; }

 private:
  // The handle of a rank's memory, as the other ranks receive it.
  struct Export;

  // True if another rank of this process takes part.
  bool has_neighbours() const;
  std::shared_ptr<WorkspaceMemory> open(const Export& exported, int peer, int device) const;
  void open_all(Bootstrap& bootstrap, int device, std::size_t bytes);
  // Allocates this rank's memory; returns its Export as bytes.
  std::string make_own(int device, std::size_t bytes);

  std::size_t mine_;
  int device_;
  bool keeps_ll128_order_ = true;
  bool is_shared_ = false;           // with ranks of this process
  std::function<bool()> is_closed_;  // by all ranks that may have opened this rank's memory
  std::vector<std::shared_ptr<WorkspaceMemory>> memory_;
};

}  // namespace gantry
