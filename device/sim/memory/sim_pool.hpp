// Stream-ordered memory of one simulated device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "device/sim/devices/sim_device.hpp"
#include "device/sim/memory/sim_memory.hpp"

namespace gantry::sim {

/// Note [Stream-ordered memory]
/// A task on the allocating stream opens the piece of memory to accesses, and a task on the freeing
/// stream closes it. Work that is not ordered after the allocation and before the free therefore
/// faults. CUDA's reuse policies apply to a freed piece. The stream that freed it reuses it at
/// once. Other streams reuse it when the free is complete, or after a wait for the free if memory
/// is short. The pool keeps freed pieces until it is trimmed or the device needs the capacity.
///
/// Thread safety: every member may be called from any host thread.
class MemoryPool {
 public:
  MemoryPool(SimDevice& device, AddressSpace& memory) : device_(device), memory_(memory) {}

  /// Memory for tasks submitted to `stream` from now on; nullptr if the capacity is exhausted.
  [[nodiscard]] void* allocate(SimStream& stream, std::size_t bytes);
  /// Frees behind what is queued on `stream`. Throws: CudaError 1 for what is no live memory.
  void deallocate(void* data, SimStream& stream);
  /// Gives back pieces whose free is done, until `bytes_to_keep` are reserved at most.
  void trim(std::size_t bytes_to_keep);
  [[nodiscard]] NativePoolMemory usage() const;
  void reset_peaks();

 private:
  struct Piece {
    std::size_t bytes = 0;
    bool live = true;
    SimStream* freed_on = nullptr;
    std::uint64_t ticket = 0;  ///< of the task that closed it
  };
  using Pieces = std::map<void*, Piece>;
  /// Free pieces by size.
  using FreePieces = std::multimap<std::size_t, Pieces::iterator>;

  [[nodiscard]] FreePieces::iterator find_exact(const SimStream& stream, std::size_t bytes);
  [[nodiscard]] Pieces::iterator take(SimStream& stream, std::size_t bytes);
  [[nodiscard]] Pieces::iterator map(std::size_t bytes);
  void release_done(std::size_t bytes_to_keep);

  SimDevice& device_;
  AddressSpace& memory_;
  mutable std::mutex mutex_;
  Pieces pieces_;
  FreePieces free_;
  NativePoolMemory usage_;
};

}  // namespace gantry::sim
