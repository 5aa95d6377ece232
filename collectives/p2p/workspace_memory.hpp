// The device memory of workspaces, while they live and after they have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/control/kept_resources.hpp"

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

}  // namespace gantry
