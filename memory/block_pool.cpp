#include "memory/block_pool.hpp"

#include <utility>

#include "memory/size_policy.hpp"

namespace gantry::memory {

bool BlockOrder::operator()(const BlockNode* a, const BlockNode* b) const {
  const std::less<const void*> before;
  void* a_stream = a->segment->stream.handle;
  void* b_stream = b->segment->stream.handle;
  if (a_stream != b_stream) return before(a_stream, b_stream);
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return before(a->data, b->data);
}

bool BlockOrder::operator()(const BlockNode* a, const Key& b) const {
  void* a_stream = a->segment->stream.handle;
  if (a_stream != b.stream) return std::less<const void*>{}(a_stream, b.stream);
  return a->bytes < b.bytes;
}

void BlockNodes::grow() {
  for (int i = 0; i < 2; ++i) {
    BlockNode& node = nodes_.emplace_back();
    // Making a place in a set of one is the only way to get a node handle.
    FreeBlocks maker;
    maker.insert(&node);
    node.place = maker.extract(maker.begin());
    node.next = spare_;
    spare_ = &node;
  }
}

BlockNode& BlockNodes::take() noexcept {
  BlockNode& node = *spare_;
  spare_ = std::exchange(node.next, nullptr);
  return node;
}

void BlockNodes::give_back(BlockNode& node) noexcept {
  node.data = nullptr;
  node.bytes = 0;
  node.requested = 0;
  node.segment = {};
  node.previous = nullptr;
  node.live = false;
  node.free = false;
  node.streams.clear();
  node.next = spare_;
  spare_ = &node;
}

BlockNode* BlockPool::take_best_fit(NativeStream stream, std::size_t bytes,
                                    std::size_t max_split_bytes) noexcept {
  const auto found = blocks_.lower_bound(BlockOrder::Key{stream.handle, bytes});
  if (found == blocks_.end()) return nullptr;
  BlockNode& node = **found;
  if (node.segment->stream != stream) return nullptr;
  if (bytes < max_split_bytes ? node.bytes >= max_split_bytes
                              : node.bytes - bytes >= kLargeSegmentBytes) {
    return nullptr;
  }
  node.place = blocks_.extract(found);
  node.free = false;
  return &node;
}

void BlockPool::insert(BlockNode& node) noexcept {
  node.free = true;
  blocks_.insert(std::move(node.place));
}

void BlockPool::remove(BlockNode& node) noexcept {
  node.place = blocks_.extract(blocks_.find(&node));
  node.free = false;
}

void split_block(BlockNode& node, std::size_t bytes, BlockNode& rest) noexcept {
  rest.data = static_cast<std::byte*>(node.data) + bytes;
  rest.bytes = node.bytes - bytes;
  rest.segment = node.segment;
  rest.previous = &node;
  rest.next = node.next;
  if (rest.next != nullptr) rest.next->previous = &rest;
  node.next = &rest;
  node.bytes = bytes;
}

void join_with_next(BlockNode& node) noexcept {
  BlockNode& gone = *node.next;
  node.bytes += gone.bytes;
  node.next = gone.next;
  if (node.next != nullptr) node.next->previous = &node;
  gone.next = nullptr;
}

}  // namespace gantry::memory
