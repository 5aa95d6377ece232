// The memory of a symmetric pool, cut into blocks from both ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gantry/memory/symmetric_pool.hpp>

#include "memory/address_range.hpp"
#include "memory/heap_block.hpp"

namespace gantry::memory {

// Note [Equal offsets]
// Symmetric blocks go to the smallest hole between symmetric blocks that fits, the first one of
// equals, else behind the last of them. Holes are what was freed, whether its work is over or not:
// that is a matter of waits between streams, which the device makes and nobody asks it for. So the
// past of the symmetric end decides alone. Local blocks can only be in the way: then the request
// fails, it never goes elsewhere.
//
// Pieces keep the uses of who had them, also those in the middle that change ends. Free neighbours
// are joined if the same streams used them, so that nobody waits for a stranger.

/// What a SymmetricPool owns; it outlives the pool while blocks are live.
///
/// Thread safety: every member may be called from any thread.
class SymmetricHeap final : public Allocator {
 public:
  SymmetricHeap(int device, std::size_t bytes);
  ~SymmetricHeap() override;

  [[nodiscard]] Block allocate(std::size_t bytes, Stream stream) override {
    return place(bytes, stream, Holder::symmetric);
  }
  [[nodiscard]] Block allocate_local(std::size_t bytes, const Stream& stream) {
    return place(bytes, stream, Holder::local);
  }
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override {
    note(block, stream, false);
  }
  void record_use(const Block& block, const Stream& stream) override { note(block, stream, true); }
  /// Does nothing: the pool keeps its memory.
  void empty_cache(Device device) override { static_cast<void>(device); }
  [[nodiscard]] bool opens_to_peers() const override { return true; }
  [[nodiscard]] std::string name() const override { return "symmetric"; }

  /// The pool is gone: the last block takes the heap with it.
  static void abandon(SymmetricHeap* heap) noexcept;

  [[nodiscard]] int device() const { return range_->device(); }
  [[nodiscard]] std::byte* base() const { return range_->base(); }
  [[nodiscard]] std::size_t bytes() const { return range_->bytes(); }
  [[nodiscard]] int export_descriptor() const { return driver().export_chunk(chunk_); }
  [[nodiscard]] std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  [[nodiscard]] std::uint64_t sequence() const {
    const std::lock_guard lock(mutex_);
    return sequence_;
  }
  [[nodiscard]] SymmetricUsage usage() const;

 private:
  // Who has a piece of the pool.
  enum class Holder : std::uint8_t { nobody, symmetric, local };
  // A part of the pool. All of them together cover it, in address order.
  struct Piece {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    Holder holder = Holder::nobody;
    StreamClock* clock = nullptr;  // of the stream that a live block belongs to
    // Live: other streams that use it. Free: all that its next owner must wait for. There is always
    // capacity for one more, so that a free needs no memory.
    std::vector<StreamUse> uses;
    std::list<Piece>::iterator self;
  };
  using Pieces = std::list<Piece>;
  // Where a block would lie.
  struct Place {
    Pieces::iterator first;  // the first piece that it covers, in part or whole
    std::size_t offset = 0;
  };

  Block place(std::size_t bytes, const Stream& stream, Holder holder);
  std::optional<Place> find(std::size_t bytes, Holder holder, std::size_t& largest);
  void order(const Place& place, std::size_t bytes, StreamClock& clock);
  void take(const Place& place, Pieces& fresh) noexcept;
  void join_next(Pieces::iterator piece) noexcept;
  void note(const Block& block, const Stream& stream, bool until_now);
  void count_step(std::uint64_t what, const Piece& piece) noexcept;
  [[noreturn]] void report_full(std::size_t requested, Holder holder, std::size_t largest) const;

  std::unique_ptr<AddressRange> range_;
  NativeChunk chunk_ = NativeChunk::none;
  mutable std::mutex mutex_;  // guards what follows
  Pieces pieces_;
  std::size_t symmetric_end_ = 0;
  std::size_t live_ = 0;
  std::uint64_t sequence_ = 0;
  bool abandoned_ = false;
};

}  // namespace gantry::memory
