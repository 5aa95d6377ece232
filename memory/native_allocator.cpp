#include "memory/native_allocator.hpp"

#include "streams/require_cuda.hpp"

namespace gantry::memory {

NativeAllocator& NativeAllocator::instance() {
  static auto& allocator = *new NativeAllocator();
  return allocator;
}

NativeAllocator::NativeAllocator() : config_(alloc_config()) {}

DeviceHeap& NativeAllocator::heap(int device) {
  return heaps_.get(device, [this](int index) { return new DeviceHeap(index, config_); });
}

Block NativeAllocator::allocate(std::size_t bytes, const Stream& stream) {
  // A hit asks the driver nothing, so it would not notice; driver() throws.
  if (in_bad_fork()) static_cast<void>(driver());
  const NativeStream native = stream.native();
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = Device::cuda(native.device),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  BlockNode& node = heap(native.device).allocate(bytes, native);
  block.data = node.data;
  block.allocator = this;
  block.handle = &node;
  return block;
}

void NativeAllocator::deallocate(Block& block) noexcept {
  if (block.handle != nullptr && !in_bad_fork()) {
    heap(block.device.index).deallocate(*static_cast<BlockNode*>(block.handle));
  }
  block = {};
}

void NativeAllocator::record_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr) return;
  heap(block.device.index).record_stream(*static_cast<BlockNode*>(block.handle), stream.native());
}

void NativeAllocator::empty_cache(Device device) {
  const int index = require_cuda(device, "empty_cache");
  if (DeviceHeap* made = heaps_.find(index)) made->empty_cache();
}

}  // namespace gantry::memory
