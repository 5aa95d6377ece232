// Freed blocks that graphs may use.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "memory/heap/heap_block.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

/// The freed blocks of a heap whose addresses graphs may use. Each waits until no program can run
/// one of these graphs any more; see Note [Captured addresses].
///
/// Not thread-safe: the heap's lock protects it.
class HeldBlocks {
 public:
  /// Adds a capture to those that may use the block. Throws: std::bad_alloc.
  static void add_capture(HeapBlock& block, std::shared_ptr<const Capture> capture);

  /// Holds a freed block. False, and nothing happened, if no graph may use it.
  [[nodiscard]] bool hold(HeapBlock& block) noexcept;
  /// Calls `free(HeapBlock&)` for the blocks that no graph may use any more.
  template <class Free>
  void release(Free&& free) noexcept {
    HeapBlock* list = std::exchange(first_, nullptr);
    while (list != nullptr) {
      HeapBlock& block = *std::exchange(list, list->next_in_bin);
      if (!hold(block)) free(block);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

 private:
  HeapBlock* first_ = nullptr;  ///< linked through next_in_bin
};

}  // namespace gantry::memory
