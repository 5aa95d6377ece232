#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/control/kept_resources.hpp"
#include "collectives/protocol/layout.hpp"

namespace gantry {

// A rank's memory as one process has it: its own, or opened from another process. Ranks of one
// process share it, because a peer may still read when its owner is gone; the owner's is the last.
class WorkspaceMemory {
 public:
  // Memory that the destructor frees.
  static std::shared_ptr<WorkspaceMemory> own(int device, std::byte* data, std::size_t bytes);
  // Memory of another process, which the destructor closes.
  static std::shared_ptr<WorkspaceMemory> opened(int device, std::byte* data);
  // The memory of this process with this number; null once it is freed.
  static std::shared_ptr<WorkspaceMemory> find(std::uint64_t number);
  WorkspaceMemory(const WorkspaceMemory&) = delete;
  WorkspaceMemory& operator=(const WorkspaceMemory&) = delete;
  ~WorkspaceMemory();

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_own() const { return is_own_; }
  // Names the memory to other ranks of the process; 0 for memory of another process.
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  WorkspaceMemory(int device, std::byte* data, std::size_t bytes, bool is_own)
      : device_(device), data_(data), bytes_(bytes), is_own_(is_own) {}

  int device_;
  std::byte* data_;
  std::size_t bytes_;
  bool is_own_;
  std::uint64_t number_ = 0;
};

// Memory of this process whose workspaces have ended: see Notes [Closing before freeing] and
// [Freeing beside waiting kernels].
//
// Thread safety: every member may be called from any thread.
class KeptWorkspaces {
 public:
  // Never destroyed: what is still there ends with the process.
  static KeptWorkspaces& instance();

  // Frees `memory`, which may be null, or keeps it. `is_closed` tells whether all ranks that may
  // have opened it have closed it.
  void free_or_keep(std::shared_ptr<WorkspaceMemory> memory,
                    std::function<bool()> is_closed) noexcept;
  // Kept memory of `bytes` on `device` that nobody has open; null if there is none.
  std::shared_ptr<WorkspaceMemory> take(int device, std::size_t bytes);

  // Begins and ends a workspace that ranks of this process share.
  void begin_sharing() noexcept { kept_.begin_sharing(); }
  void end_sharing() noexcept { kept_.end_sharing(); }

 private:
  struct Kept {
    std::shared_ptr<WorkspaceMemory> memory;
    std::function<bool()> is_closed;
    [[nodiscard]] bool is_unused() const { return memory.use_count() == 1 && is_closed(); }
  };

  KeptWorkspaces();
  // Frees what is kept on `device` and may be freed now. True if anything was freed.
  bool free_closed(int device) noexcept;

  KeptResources<Kept> kept_;
};

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
