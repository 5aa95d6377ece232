// A reservation of addresses on one device, its parts, and the chunks that are mapped in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/run_set.hpp"
#include "memory/arenas/chunk_store.hpp"
#include "memory/arenas/exportable.hpp"

namespace gantry::memory {

/// Addresses that a heap keeps for good, with chunks of a store mapped at some of them.
///
/// The owning device and its peers can use the mapped memory. A device that becomes a peer later
/// gets access to all of it. Runs are multiples of kFineChunkBytes.
/// Thread safety: every member may be called from any thread.
class AddressRange {
 public:
  /// Throws: CudaError.
  AddressRange(ChunkStore& chunks, std::size_t bytes);
  ~AddressRange();

  [[nodiscard]] int device() const { return chunks_.device(); }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Maps chunks at `run`, where nothing is mapped; see ChunkStore::acquire for `limit` and
  /// `coarse`. False if limit or device do not allow it. Then, and if it throws, nothing is mapped.
  /// Throws: CudaError, std::bad_alloc.
  [[nodiscard]] bool map(Run run, std::size_t limit, bool coarse);
  /// Unmaps whole chunks, which no work uses any more, and returns them to the store.
  /// Throws: CudaError, std::bad_alloc; nothing has changed then.
  void unmap(Run run);

  /// The longest run of whole chunks inside `within` that are not pinned, or the first one of
  /// `enough` bytes or more; empty if there is none.
  [[nodiscard]] Run whole_chunks(Run within, std::size_t enough) const;

  /// Keeps the chunks below `block` where they are until as many unpin(), and lists them. Equal
  /// chunks have an equal `extent_id` while they are pinned. Throws: std::bad_alloc.
  [[nodiscard]] BlockExtent pin(Run block);
  void unpin(Run block) noexcept;
  [[nodiscard]] bool has_pins() const {
    const std::lock_guard lock(mutex_);
    return !pinned_.empty();
  }

  /// The mapped runs without gap, and their number.
  [[nodiscard]] std::vector<Run> mapped_runs() const {
    const std::lock_guard lock(mutex_);
    return list_runs();
  }
  [[nodiscard]] std::size_t count_runs() const {
    const std::lock_guard lock(mutex_);
    return runs_;
  }

  /// Asserts that the chunks lie side by side, and that their runs are counted.
  void verify() const;
  /// Gives `device` access to all memory that is mapped, now and later.
  void open_to(int device);

 private:
  struct Mapping {
    Chunk chunk;
    int pins = 0;
  };
  using Mappings = std::map<std::size_t, Mapping>;
  /// Chunks that other processes may map.
  struct PinnedExtent {
    std::uint64_t id = 0;
    int pins = 0;
  };

  void map_chunks(std::size_t offset, std::span<const Chunk> chunks);
  /// The offset behind a chunk.
  [[nodiscard]] static std::size_t end_of(const Mappings::value_type& mapping) {
    return mapping.first + mapping.second.chunk.bytes;
  }
  /// The chunk that covers `offset`.
  [[nodiscard]] Mappings::iterator mapping_of(std::size_t offset) {
    return std::prev(mappings_.upper_bound(offset));
  }
  [[nodiscard]] std::size_t runs_beside(Run run) const;
  [[nodiscard]] std::vector<Run> list_runs() const;

  ChunkStore& chunks_;
  const std::size_t bytes_;
  std::byte* const base_;
  mutable std::mutex mutex_;
  std::vector<int> devices_;  ///< that may access it: the owner, then its peers
  Mappings mappings_;         ///< by offset
  std::size_t runs_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, PinnedExtent> pinned_;  ///< by begin and end
};

}  // namespace gantry::memory
