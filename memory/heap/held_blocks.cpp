#include "memory/heap/held_blocks.hpp"

#include <algorithm>

namespace gantry::memory {

void HeldBlocks::add_capture(HeapBlock& block, std::shared_ptr<const Capture> capture) {
  if (block.captures == nullptr) block.captures = std::make_unique<CaptureList>();
  CaptureList& captures = *block.captures;
  if (std::ranges::find(captures, capture) == captures.end()) {
    captures.push_back(std::move(capture));
  }
}

bool HeldBlocks::hold(HeapBlock& block) noexcept {
  if (block.captures == nullptr) return false;
  std::erase_if(*block.captures, [](const auto& capture) { return !capture->is_needed(); });
  if (block.captures->empty()) {
    block.captures.reset();
    return false;
  }
  block.next_in_bin = std::exchange(first_, &block);
  return true;
}

}  // namespace gantry::memory
