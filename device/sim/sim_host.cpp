// The address space's knowledge of host memory that the caller page-locks, and of pooled pieces.
#include <fmt/format.h>
#include <sys/mman.h>

#include <mutex>

#include "device/sim/devices/sim_error.hpp"
#include "device/sim/memory/sim_memory.hpp"

namespace gantry::sim {

void AddressSpace::register_host(void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<Address>(data);
  const std::string doing = fmt::format("page-locking {} bytes at {}", bytes, data);
  const std::size_t page = round_to_pages(1);
  if (bytes == 0 || bytes % page != 0 || address == 0 || address % page != 0 ||
      bytes > SIZE_MAX - address) {
    fail(kInvalidValue, doing, -1, "expected whole pages");
  }
  const std::lock_guard lock(mutex_);
  const auto next = extents_.lower_bound(address);
  if (find(address) != extents_.end() ||
      (next != extents_.end() && next->first - address < bytes)) {
    fail(kAlreadyRegistered, doing);
  }
  Extent extent{.kind = Kind::pinned, .bytes = bytes};
  extent.foreign = true;
  extents_[address] = extent;
}

void AddressSpace::check_registered(const void* data) const {
  const std::shared_lock lock(mutex_);
  const auto it = extents_.find(reinterpret_cast<Address>(data));
  if (it == extents_.end() || !it->second.foreign) {
    fail(kNotRegistered, fmt::format("unlocking the pages at {}", data));
  }
}

void AddressSpace::unregister_host(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto it = extents_.find(reinterpret_cast<Address>(data));
  if (it != extents_.end() && it->second.foreign) extents_.erase(it);
}

void AddressSpace::add_pooled(void* data, std::size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  extents_[reinterpret_cast<Address>(data)] = {
      .kind = Kind::freed, .bytes = bytes, .device = device};
}

void AddressSpace::set_pooled(const void* data, bool live) {
  const std::lock_guard lock(mutex_);
  extents_.at(reinterpret_cast<Address>(data)).kind = live ? Kind::pooled : Kind::freed;
}

void AddressSpace::remove_pooled(const void* data) {
  const std::lock_guard lock(mutex_);
  retire(extents_.find(reinterpret_cast<Address>(data)));
}

}  // namespace gantry::sim
