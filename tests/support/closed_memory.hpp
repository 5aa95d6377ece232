#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <string>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::testing {

/// Memory of one device, mapped for that device alone, as other libraries' pools are. Nothing of it
/// is used twice. Needs virtual memory.
class ClosedMemory final : public memory::Allocator {
 public:
  explicit ClosedMemory(Device device) : device_(device) {
    const std::size_t grain = driver().chunk_granularity(device.index);
    bytes_ = (kBytes + grain - 1) / grain * grain;
    base_ = static_cast<std::byte*>(driver().reserve_address(bytes_, 0));
    chunk_ = driver().create_chunk(device.index, bytes_);
    driver().map_chunk(base_, bytes_, chunk_);
    const int owner[] = {device.index};
    driver().set_access(base_, bytes_, owner);
  }
  ~ClosedMemory() override {
    driver().synchronize_device(device_.index);
    driver().unmap(base_, bytes_);
    driver().release_chunk(chunk_);
    driver().free_address(base_, bytes_);
  }
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  memory::Block allocate(const Stream&, std::size_t bytes, std::size_t /*alignment*/) override {
    const std::lock_guard lock(mutex_);
    std::byte* data = base_ + used_;
    used_ += (bytes + 511) / 512 * 512;
    if (used_ > bytes_) throw std::bad_alloc();
    return {data, bytes, device_, this, nullptr};
  }
  void deallocate(memory::Block& block) noexcept override { block = {}; }
  std::string name() const override { return "closed"; }

 private:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  const Device device_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  NativeChunk chunk_ = NativeChunk::none;
  std::mutex mutex_;
  std::size_t used_ = 0;
};

}  // namespace gantry::testing
