#include <gantry/tensor/storage.hpp>

#include <atomic>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>

namespace gantry {

struct Storage::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (block.allocator != nullptr) block.allocator->deallocate(block);
    if (deleter) deleter(data);
  }

  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  bool pinned = false;
  memory::Block block;
  std::optional<memory::ImportedBlock> imported;
  std::function<void(void*)> deleter;
  // What the driver says of memory that is not ours, once it was asked.
  enum class Reach : signed char { unknown, device, peers };
  mutable std::atomic<Reach> reach{Reach::unknown};
};

Storage Storage::allocate(std::size_t bytes, Device device, bool pinned) {
  auto impl = std::make_shared<Impl>();
  impl->bytes = bytes;
  impl->device = device;
  impl->pinned = pinned;
  if (device.is_cuda()) {
    impl->block = memory::allocator(device).allocate(bytes, Stream::current(device));
  } else {
    impl->block = pinned ? memory::pinned(bytes).release() : memory::allocate_cpu(bytes);
  }
  impl->data = impl->block.data;
  return Storage(std::move(impl));
}

Storage Storage::foreign(void* data, std::size_t bytes, Device device,
                         std::function<void(void*)> deleter) {
  auto impl = std::make_shared<Impl>();
  impl->data = data;
  impl->bytes = bytes;
  impl->device = device;
  impl->pinned = device.is_cpu() && bytes > 0 && memory::is_pinned(data);
  impl->deleter = std::move(deleter);
  return Storage(std::move(impl));
}

Storage Storage::imported(memory::ImportedBlock block) {
  auto impl = std::make_shared<Impl>();
  impl->data = block.data();
  impl->bytes = block.bytes();
  impl->device = block.device();
  impl->imported = std::move(block);
  return Storage(std::move(impl));
}

void* Storage::data() const { return impl_ ? impl_->data : nullptr; }
std::size_t Storage::bytes() const { return impl_ ? impl_->bytes : 0; }
Device Storage::device() const { return impl_ ? impl_->device : Device::cpu(); }
bool Storage::is_pinned() const { return impl_ && impl_->pinned; }

bool Storage::is_open_to_peers() const {
  if (!impl_ || impl_->device.is_cpu()) return false;
  Impl::Reach reach = impl_->reach.load(std::memory_order_relaxed);
  if (reach == Impl::Reach::unknown) {
    const memory::Block* own = block();
    const bool is_open = impl_->bytes == 0 || impl_->imported ||
                         (own != nullptr && own->allocator->is_peer_accessible()) ||
                         driver().pointer_info(impl_->data).is_open_to_peers;
    reach = is_open ? Impl::Reach::peers : Impl::Reach::device;
    impl_->reach.store(reach, std::memory_order_relaxed);
  }
  return reach == Impl::Reach::peers;
}

const memory::Block* Storage::block() const {
  return impl_ && impl_->block.allocator != nullptr ? &impl_->block : nullptr;
}

void Storage::record_stream(const Stream& stream) const {
  const memory::Block* own = block();
  if (own != nullptr) own->allocator->record_stream(*own, stream);
  if (impl_ && impl_->imported) impl_->imported->record_stream(stream);
}

void Storage::record_use(const Stream& stream) const {
  const memory::Block* own = block();
  if (own != nullptr) own->allocator->record_use(*own, stream);
  if (impl_ && impl_->imported) impl_->imported->record_stream(stream);
}

}  // namespace gantry
