// An allocator over chunks made directly with the driver, for tests of what is shared as chunks.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "memory/arenas/exportable.hpp"

namespace gantry::testing {

/// A fixed number of smallest chunks on one device, cut first-fit. Never destroyed while blocks are
/// out. Thread safety: any thread.
class VmmSource final : public memory::Allocator, public memory::ExportableAllocator {
 public:
  VmmSource(int device, std::size_t chunks)
      : device_(device), chunk_bytes_(driver().chunk_granularity(device)) {
    bytes_ = chunks * chunk_bytes_;
    base_ = static_cast<std::byte*>(driver().reserve_address(bytes_, 0));
    for (std::size_t i = 0; i < chunks; ++i) {
      chunks_.push_back(driver().create_chunk(device, chunk_bytes_));
      driver().map_chunk(base_ + i * chunk_bytes_, chunk_bytes_, chunks_.back());
    }
    const int owner[] = {device};
    driver().set_access(base_, bytes_, owner);
    free_.emplace(0, bytes_);
  }
  ~VmmSource() override {
    driver().unmap(base_, bytes_);
    for (const NativeChunk chunk : chunks_) driver().release_chunk(chunk);
    driver().free_address(base_, bytes_);
  }
  VmmSource(const VmmSource&) = delete;
  VmmSource& operator=(const VmmSource&) = delete;

  memory::Block allocate(const Stream& stream, std::size_t bytes,
                         std::size_t /*alignment*/ = memory::kDefaultAlignment) override {
    static_cast<void>(stream);
    const std::size_t size = (bytes + 511) / 512 * 512;
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [offset, room] = *it;
      if (room < size) continue;
      free_.erase(it);
      if (room > size) free_.emplace(offset + size, room - size);
      Piece& piece = pieces_.emplace_back(Piece{offset, size, true, 0});
      live_bytes_ += size;
      return {base_ + offset, bytes, Device::cuda(device_), this, &piece};
    }
    throw Error("VmmSource: no room for " + std::to_string(bytes) + " bytes");
  }
  void deallocate(memory::Block& block) noexcept override {
    Piece& piece = *static_cast<Piece*>(block.handle);
    if (piece.pins > 0 && memory::defer_exported_free(block)) {
      block = {};
      return;
    }
    give_back(piece);
    block = {};
  }
  void record_stream(const memory::Block&, const Stream&) override {}
  void empty_cache(Device) override {}
  std::string name() const override { return "chunks"; }

  memory::BlockExtent pin(const memory::Block& block) override {
    const std::lock_guard lock(mutex_);
    Piece& piece = *static_cast<Piece*>(block.handle);
    if (!piece.live) throw InvalidArgument("export_ipc: expected a live block");
    ++piece.pins;
    const std::size_t first = piece.offset / chunk_bytes_;
    const std::size_t last = (piece.offset + piece.bytes - 1) / chunk_bytes_;
    auto& id = extents_[{first, last}];
    if (id == 0) id = extents_.size();
    memory::BlockExtent extent;
    extent.extent_id = id;
    extent.offset = piece.offset - first * chunk_bytes_;
    extent.bytes = (last - first + 1) * chunk_bytes_;
    for (std::size_t i = first; i <= last; ++i) extent.chunks.push_back({chunks_[i], chunk_bytes_});
    return extent;
  }
  void unpin(const memory::Block& block) noexcept override {
    const std::lock_guard lock(mutex_);
    --static_cast<Piece*>(block.handle)->pins;
  }
  void free_from_limbo(memory::Block& block) noexcept override {
    give_back(*static_cast<Piece*>(block.handle));
  }

  /// Bytes of blocks that are live or in limbo.
  [[nodiscard]] std::size_t live_bytes() const {
    const std::lock_guard lock(mutex_);
    return live_bytes_;
  }
  /// Number of pins of all blocks.
  [[nodiscard]] int pins() const {
    const std::lock_guard lock(mutex_);
    int sum = 0;
    for (const Piece& piece : pieces_) sum += piece.pins;
    return sum;
  }
  [[nodiscard]] std::size_t chunk_bytes() const { return chunk_bytes_; }

 private:
  struct Piece {
    std::size_t offset;
    std::size_t bytes;
    bool live;
    int pins;
  };

  void give_back(Piece& piece) noexcept {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(piece.live, false)) return;
    live_bytes_ -= piece.bytes;
    auto at = free_.emplace(piece.offset, piece.bytes).first;
    if (const auto next = std::next(at);
        next != free_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      free_.erase(next);
    }
    if (at != free_.begin()) {
      const auto previous = std::prev(at);
      if (previous->first + previous->second == at->first) {
        previous->second += at->second;
        free_.erase(at);
      }
    }
  }

  const int device_;
  const std::size_t chunk_bytes_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  std::vector<NativeChunk> chunks_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;
  std::list<Piece> pieces_;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> extents_;
  std::size_t live_bytes_ = 0;
};

}  // namespace gantry::testing
