#include <gantry/tensor/storage.hpp>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "core/address_sanitizer.hpp"
#include "core/assert.hpp"
#include "core/thread_free_list.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry {

struct Storage::Impl {
  struct Small;

  Impl() = default;
  Impl(memory::Buffer owned, std::size_t size, Device where, bool is_pinned)
      : data(owned.data()),
        bytes(size),
        device(where),
        pinned(is_pinned),
        buffer(std::move(owned)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    GANTRY_ASSERT(!deleter || (buffer.owner() == nullptr && !imported), "memory has two owners");
    if (!deleter && buffer.owner() == nullptr) return;
    const memory::NoActivePool scope;
    if (deleter) deleter(data);
    buffer.reset();
  }

  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  bool pinned = false;
  memory::Buffer buffer;
  std::optional<memory::ImportedBlock> imported;
  std::function<void(void*)> deleter;
  // The cached answer of is_peer_accessible().
  enum class PeerAccess : signed char { unknown, none, all };
  mutable std::atomic<PeerAccess> peer_access{PeerAccess::unknown};
};

// With memory of its own, for small tensors of the CPU. Its block has no handle: the allocator
// frees nothing.
struct Storage::Impl::Small : Storage::Impl {
  // AddressSanitizer knows no bounds of a part of an object.
  static constexpr std::size_t kBytes = kHasAddressSanitizer ? 0 : 256;

  explicit Small(std::size_t size)
      : Impl(memory::Buffer({.data = own_memory,
                             .bytes = size,
                             .device = Device::cpu(),
                             .allocator = &memory::cpu_allocator(),
                             .handle = nullptr}),
             size, Device::cpu(), false) {}

  alignas(memory::kCpuAlignment) std::byte own_memory[std::max<std::size_t>(kBytes, 1)];
};

Storage Storage::allocate(std::size_t bytes, Device device, bool pinned) {
  if (device.is_cpu() && !pinned && bytes != 0 && bytes <= Impl::Small::kBytes) {
    return Storage(
        std::allocate_shared<Impl::Small>(ThreadFreeListAllocator<Impl::Small>(), bytes));
  }
  const auto holding = [&](memory::Buffer buffer) {
    return Storage(std::make_shared<Impl>(std::move(buffer), bytes, device, pinned));
  };
  if (device.is_cuda()) return holding(memory::allocate(Stream::current(device), bytes));
  return holding(pinned ? memory::pinned(bytes) : memory::Buffer(memory::allocate_cpu(bytes)));
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

void* Storage::data() const noexcept { return impl_ ? impl_->data : nullptr; }
std::size_t Storage::bytes() const noexcept { return impl_ ? impl_->bytes : 0; }
Device Storage::device() const noexcept { return impl_ ? impl_->device : Device::cpu(); }
bool Storage::is_pinned() const noexcept { return impl_ && impl_->pinned; }

bool Storage::is_peer_accessible() const {
  if (!impl_ || impl_->device.is_cpu()) return false;
  Impl::PeerAccess access = impl_->peer_access.load(std::memory_order_relaxed);
  if (access == Impl::PeerAccess::unknown) {
    const memory::Block* own = block();
    const bool accessible = impl_->bytes == 0 || impl_->imported ||
                            (own != nullptr && own->allocator->is_peer_accessible()) ||
                            driver().pointer_info(impl_->data).is_open_to_peers;
    access = accessible ? Impl::PeerAccess::all : Impl::PeerAccess::none;
    impl_->peer_access.store(access, std::memory_order_relaxed);
  }
  return access == Impl::PeerAccess::all;
}

const memory::Block* Storage::block() const noexcept {
  if (!impl_ || impl_->buffer.block().allocator == nullptr) return nullptr;
  GANTRY_ASSERT(impl_->buffer.block().data == impl_->data && !impl_->imported,
                "a storage is of other memory than its block");
  return &impl_->buffer.block();
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
