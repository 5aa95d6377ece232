#include "memory/async_allocator.hpp"

#include "streams/require_cuda.hpp"

namespace gantry::memory {

AsyncAllocator& AsyncAllocator::instance() {
  static auto& allocator = *new AsyncAllocator(alloc_config());
  return allocator;
}

AsyncAllocator::~AsyncAllocator() {
  for (int i = 0; i < pools_.size(); ++i) delete pools_.find(i);
}

AsyncPool& AsyncAllocator::pool(int device) {
  return pools_.get(device, [this](int index) { return new AsyncPool(index, config_.fraction); });
}

Block AsyncAllocator::allocate(std::size_t bytes, Stream stream) {
  // No bytes ask the driver nothing, so it would not notice; driver() throws.
  if (in_bad_fork()) static_cast<void>(driver());
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = stream.device(),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  AsyncBlock& made = pool(stream.native().device).allocate(bytes, stream);
  block.data = made.data;
  block.allocator = this;
  block.handle = &made;
  return block;
}

void AsyncAllocator::deallocate(Block& block) noexcept {
  if (block.handle != nullptr && !in_bad_fork()) {
    // The pool is there: it made the block.
    pools_.find(block.device.index)->deallocate(*static_cast<AsyncBlock*>(block.handle));
  }
  block = {};
}

void AsyncAllocator::record_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr || in_bad_fork()) return;
  pool(block.device.index).record_stream(*static_cast<AsyncBlock*>(block.handle), stream);
}

void AsyncAllocator::empty_cache(Device device) {
  const int index = require_cuda(device, "empty_cache");
  if (AsyncPool* made = pools_.find(index)) made->empty_cache();
}

}  // namespace gantry::memory
