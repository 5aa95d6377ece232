// Contents of a pool's live blocks, kept while the pool has no physical memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/memory/buffer.hpp>

#include "memory/source/heap_mutex.hpp"

namespace gantry::memory {

struct Pool;

/// A copy of live blocks in page-locked host memory. Guarded by Pool::physical_mutex.
class SavedContents {
 public:
  /// Copies all live blocks of the pool, whose memory no work uses. The heap's lock is released
  /// meanwhile. Throws, with the strong guarantee: OutOfMemoryError, CudaError, std::bad_alloc.
  void save(HeapLock& lock, const Pool& pool);
  /// Copies them back to the blocks that are still live and have memory. The copy is kept.
  /// Throws: CudaError, std::bad_alloc.
  void restore(HeapLock& lock, const Pool& pool) const;
  /// Frees the copy.
  void clear() noexcept;
  [[nodiscard]] bool empty() const noexcept { return blocks_.empty(); }

 private:
  struct Saved {
    std::uintptr_t address;
    std::size_t bytes;
    std::size_t offset;  ///< in `host_`
  };

  std::vector<Saved> blocks_;  ///< by address
  Buffer host_;
};

}  // namespace gantry::memory
