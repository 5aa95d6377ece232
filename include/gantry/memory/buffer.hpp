#pragma once

#include <cstddef>

#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// Sole owner of a Block: gives it back when destroyed. Move-only; moved-from, it owns none.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Block block) : block_(block) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept : block_(other.release()) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      block_ = other.release();
    }
    return *this;
  }

  [[nodiscard]] void* data() const { return block_.data; }
  [[nodiscard]] std::size_t bytes() const { return block_.bytes; }
  [[nodiscard]] Device device() const { return block_.device; }
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
