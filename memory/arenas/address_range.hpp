// A reservation of addresses on one device, its parts, and the chunks that are mapped in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/assert.hpp"
#include "memory/arenas/chunk_store.hpp"
#include "memory/arenas/exportable.hpp"

namespace gantry::memory {

/// A part of an address range: the bytes [begin, end), as offsets.
struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t bytes() const { return end - begin; }
  friend bool operator==(const Run&, const Run&) = default;
};

/// A set of runs that do not overlap.
///
/// Not thread-safe.
class RunSet {
 public:
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  /// The run with the highest addresses. The set is not empty.
  [[nodiscard]] Run last() const {
    const auto& [begin, end] = *ends_.rbegin();
    return {begin, end};
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [begin, end] : ends_) sum += end - begin;
    return sum;
  }
  /// The first part of a run of this set that lies inside `whole`; empty if there is none.
  [[nodiscard]] Run first_inside(Run whole) const {
    auto run = ends_.upper_bound(whole.begin);
    if (run != ends_.begin() && std::prev(run)->second > whole.begin) --run;
    if (run == ends_.end() || run->first >= whole.end) return {};
    return {std::max(whole.begin, run->first), std::min(whole.end, run->second)};
  }

  /// Adds a run that overlaps none of this set. Throws: std::bad_alloc.
  void add(Run run) {
    GANTRY_ASSERT(first_inside(run).bytes() == 0, "a run is added that overlaps another one");
    ends_.emplace(run.begin, run.end);
  }
  /// Removes `part`, which lies inside one run. Throws: std::bad_alloc, unless `part` ends with
  /// that run; nothing has changed then.
  void remove(Run part) {
    const auto run = std::prev(ends_.upper_bound(part.begin));
    GANTRY_ASSERT(part.begin < part.end && part.end <= run->second,
                  "a part is removed that is not inside one run");
    if (part.end < run->second) ends_.emplace(part.end, run->second);
    run->second = part.begin;
    if (run->first == run->second) ends_.erase(run);
  }

 private:
  std::map<std::size_t, std::size_t> ends_;  ///< by begin
};

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
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

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
  [[nodiscard]] bool has_pins() const;

  /// The mapped runs without gap, and their number.
  [[nodiscard]] std::vector<Run> mapped_runs() const;
  [[nodiscard]] std::size_t count_runs() const;

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
  [[nodiscard]] Mappings::iterator mapping_of(std::size_t offset);
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
