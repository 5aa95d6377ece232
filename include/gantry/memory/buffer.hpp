#pragma once

#include <cstddef>

#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// Sole owner of a Block: gives it back when destroyed. Move-only; moved-from, it owns none.
class Buffer {
 public:
  Buffer() = default;
  /// Takes over `block`.
  explicit Buffer(Block block) : block_(block) {}
  ~Buffer() { reset(); }
  /// Takes over the block of `other`, which owns none afterwards.
  Buffer(Buffer&& other) noexcept : block_(other.release()) {}
  /// Frees the own block, then takes over that of `other`.
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      block_ = other.release();
    }
    return *this;
  }

  /// First byte; null if there is no block.
  [[nodiscard]] void* data() const { return block_.data; }
  /// Bytes asked for; 0 if there is no block.
  [[nodiscard]] std::size_t bytes() const { return block_.bytes; }
  /// Device of the memory; the CPU if there is no block.
  [[nodiscard]] Device device() const { return block_.device; }
  /// The block, which the buffer still owns.
  [[nodiscard]] const Block& block() const { return block_; }
  /// Gives the memory back now.
  void reset() noexcept {
    if (block_.allocator != nullptr) block_.allocator->deallocate(block_);
    block_ = {};
  }
  /// Hands the block to the caller, who must give it back.
  [[nodiscard]] Block release() noexcept {
    const Block block = block_;
    block_ = {};
    return block;
  }

 private:
  Block block_;
};

}  // namespace gantry::memory
