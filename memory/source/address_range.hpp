// A reservation of addresses on one device, and the chunks that are mapped in it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "memory/source/chunk_store.hpp"

namespace gantry::memory {

/// Addresses that a heap keeps for good, with physical memory behind some of them.
///
/// What is mapped here can be used by its own device and by those that may access it as peers, also
/// by ones that get that access later. Offsets and sizes are in bytes and multiples of
/// kFineChunkBytes.
/// Thread safety: every member may be called from any thread.
class AddressRange {
 public:
  /// Throws: CudaError.
  AddressRange(int device, std::size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Puts `chunks` side by side at `offset`, where nothing is mapped. Throws: CudaError; nothing
  /// is mapped then.
  void map(std::size_t offset, std::span<const Chunk> chunks);
  /// Takes whole chunks away from [offset, offset + bytes), which no work uses any more, and
  /// returns them. Throws: CudaError; nothing has changed then.
  [[nodiscard]] std::vector<Chunk> unmap(std::size_t offset, std::size_t bytes);

  /// The longest run of whole chunks inside [begin, end) that are not pinned, or the first part of
  /// `enough` bytes or more: {begin, end}, equal if there is none.
  [[nodiscard]] std::pair<std::size_t, std::size_t> whole_chunks(std::size_t begin, std::size_t end,
                                                                 std::size_t enough) const;
  /// The chunks behind [begin, end) in order, and the offset of the first.
  struct Extent {
    std::size_t offset = 0;
    std::vector<Chunk> chunks;
  };
  [[nodiscard]] Extent extent(std::size_t begin, std::size_t end) const;
  /// Where the first of them begins and the last one ends.
  [[nodiscard]] std::pair<std::size_t, std::size_t> bounds(std::size_t begin,
                                                           std::size_t end) const noexcept;
  /// Keeps the chunks behind [begin, end) where they are until as many unpin().
  void pin(std::size_t begin, std::size_t end);
  void unpin(std::size_t begin, std::size_t end) noexcept;

  /// Bytes that are mapped, in how many runs without gap, and the runs: offset and size.
  [[nodiscard]] std::size_t mapped() const;
  [[nodiscard]] std::size_t runs() const;
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> mapped_runs() const;

  /// Lets `device` access what is mapped and what will be.
  void open_to(int device);
  [[nodiscard]] int device() const { return devices_.front(); }

 private:
  struct Mapping {
    Chunk chunk;
    int pins = 0;
  };
  using Mappings = std::map<std::size_t, Mapping>;

  [[nodiscard]] Mappings::const_iterator at_or_before(std::size_t offset) const;

  mutable std::mutex mutex_;
  std::vector<int> devices_;  ///< the owner, then those that may access it
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  Mappings mappings_;  ///< by offset
  std::size_t mapped_ = 0;
  std::size_t runs_ = 0;
};

}  // namespace gantry::memory
