// The parts of a process's address ranges that a group of processes maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "memory/arenas/address_range.hpp"
#include "memory/arenas/exportable.hpp"

namespace gantry::memory {

/// Chunks of one address range, side by side.
struct RangePart {
  std::byte* base = nullptr;  ///< of the range
  std::uint64_t range = 0;    ///< its number
  std::size_t range_bytes = 0;
  Run run{};
};

/// Chunks that are to be offered to the members of a group.
struct ChunkOffer {
  RangePart part;
  std::vector<Chunk> chunks;
};

/// The chunks that a process has offered to the members of a group, and what became of them: see
/// Note [Mirrors]. A chunk is unknown, offered, open, withdrawn or refused.
///
/// Not thread-safe.
class OfferedRanges {
 public:
  explicit OfferedRanges(std::size_t members) : members_(members) {}

  /// Writes where each member has the `bytes` at `data`. False, and nothing written, unless all of
  /// their chunks are open.
  [[nodiscard]] bool find(const std::byte* data, std::size_t bytes,
                          std::span<std::byte*> addresses) const;
  /// The unknown chunks of an extent that begins at `begin`, which are offered from now on: at most
  /// kChunksPerPacket in each part. Throws: std::bad_alloc; some are offered for good then.
  [[nodiscard]] std::vector<ChunkOffer> offer(const BlockExtent& extent, std::byte* begin);
  /// True if some of the bytes are offered or withdrawn, so that find() may find them later.
  [[nodiscard]] bool is_in_transition(const std::byte* data, std::size_t bytes) const;

  /// True if all chunks of a part are offered.
  [[nodiscard]] bool is_offered(const RangePart& part) const;
  /// The offered chunks of a part become open, at these addresses of the range; refused; unknown.
  /// Throws: std::bad_alloc.
  void accept(const RangePart& part, std::vector<std::byte*> mirrors);
  void refuse(const RangePart& part);
  void drop(const RangePart& part);

  /// The offered and open chunks that leave their addresses are withdrawn from now on, and the
  /// refused ones unknown. Throws: std::bad_alloc.
  [[nodiscard]] std::vector<RangePart> withdraw(std::byte* address, std::size_t bytes);
  /// Withdrawn chunks become unknown: all members have unmapped them. Throws: std::bad_alloc.
  void forget(const RangePart& part);
  [[nodiscard]] bool has_withdrawn() const;

  /// Keeps open addresses for graphs: chunks that are mapped there later must be opened, too.
  /// Throws: std::bad_alloc.
  void keep(const std::byte* data, std::size_t bytes);
  /// True if some of the addresses are kept; and if some of these are not open.
  [[nodiscard]] bool has_kept(const std::byte* address, std::size_t bytes) const;
  [[nodiscard]] bool has_kept_closed(const std::byte* address, std::size_t bytes) const;

  /// Nothing is open any more.
  void clear() noexcept { ranges_.clear(); }

 private:
  struct Range {
    std::uint64_t number = 0;  ///< tells it from later ones at its addresses
    std::size_t bytes = 0;
    std::vector<std::byte*> mirrors{};  ///< by member; null: unknown
    RunSet offered{};
    RunSet open{};
    RunSet withdrawn{};
    RunSet refused{};
    RunSet kept{};

    [[nodiscard]] bool is_unused() const {
      return offered.empty() && open.empty() && withdrawn.empty() && kept.empty();
    }
    [[nodiscard]] bool knows(Run run) const;
  };
  /// A range and the place of some bytes in it.
  struct Place {
    std::byte* base = nullptr;
    const Range* range = nullptr;  ///< nullptr: in none
    Run run{};
  };

  [[nodiscard]] Place place_of(const std::byte* data, std::size_t bytes) const;
  [[nodiscard]] Range* range_of(const RangePart& part);
  [[nodiscard]] Range* range_for(const BlockExtent& extent);

  const std::size_t members_;
  std::map<std::byte*, Range> ranges_;  ///< by their first address
  std::uint64_t last_number_ = 0;
};

}  // namespace gantry::memory
