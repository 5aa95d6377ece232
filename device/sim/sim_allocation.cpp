// The memory calls of the driver: what may be called when, then the address space or the pool.
#include <fmt/format.h>

#include "device/sim/devices/sim_error.hpp"
#include "device/sim/sim_driver.hpp"

namespace gantry::sim {

void* SimDriver::allocate(int device, std::size_t bytes) {
  const std::string doing = fmt::format("allocating {} bytes on cuda:{}", bytes, device);
  (void)device_of(device, doing);
  return memory_->allocate(device, bytes);
}

void SimDriver::deallocate(int device, void* data) {
  if (data == nullptr) return;
  const std::string doing = fmt::format("freeing {} on cuda:{}", data, device);
  const SimDevice& d = device_of(device, doing);
  memory_->check_allocation(device, data);
  d.drain();
  // As CUDA does: a device with access may still read the memory.
  for (int other = 0; other < static_cast<int>(devices_.size()); ++other) {
    if (other != device && peers_.enabled(other, device)) {
      devices_[static_cast<std::size_t>(other)]->drain();
    }
  }
  memory_->deallocate(device, data);
}

void* SimDriver::allocate_pinned(std::size_t bytes) {
  const std::string doing = fmt::format("allocating {} bytes of pinned host memory", bytes);
  (void)device_of(0, doing);
  return memory_->allocate_pinned(bytes);
}

void SimDriver::deallocate_pinned(void* data) {
  if (data == nullptr) return;
  const std::string doing = fmt::format("freeing pinned host memory at {}", data);
  (void)device_of(0, doing);
  memory_->check_pinned(data);
  for (const auto& device : devices_) device->drain();
  memory_->deallocate_pinned(data);
}

bool SimDriver::register_host(void* data, std::size_t bytes) {
  const std::string doing = fmt::format("page-locking {} bytes at {}", bytes, data);
  (void)device_of(0, doing);
  memory_->register_host(data, bytes);
  return true;
}

void SimDriver::unregister_host(void* data) {
  const std::string doing = fmt::format("unlocking the pages at {}", data);
  (void)device_of(0, doing);
  memory_->check_registered(data);
  for (const auto& device : devices_) device->drain();
  memory_->unregister_host(data);
}

PointerInfo SimDriver::pointer_info(const void* data) { return memory_->info(data); }

bool SimDriver::supports_virtual_memory(int device) {
  (void)device_of(device, "asking for virtual memory calls");
  return true;
}

std::size_t SimDriver::chunk_granularity(int device) {
  (void)device_of(device, "reading the chunk granularity");
  return AddressSpace::kGranularity;
}

void* SimDriver::reserve_address(std::size_t bytes, std::size_t alignment) {
  return memory_->reserve(bytes, alignment);
}

void SimDriver::free_address(void* address, std::size_t bytes) { memory_->release(address, bytes); }

NativeChunk SimDriver::create_chunk(int device, std::size_t bytes) {
  (void)device_of(device, fmt::format("creating a chunk on cuda:{}", device));
  return memory_->create_chunk(device, bytes);
}

void SimDriver::release_chunk(NativeChunk chunk) { memory_->release_chunk(chunk); }

void SimDriver::map_chunk(void* address, std::size_t bytes, NativeChunk chunk) {
  memory_->map(address, bytes, chunk);
}

void SimDriver::unmap(void* address, std::size_t bytes) { memory_->unmap(address, bytes); }

void SimDriver::set_access(void* address, std::size_t bytes, std::span<const int> devices) {
  memory_->set_access(address, bytes, devices);
}

UniqueFd SimDriver::export_chunk(NativeChunk chunk) {
  share();
  return memory_->export_chunk(chunk);
}

NativeChunk SimDriver::import_chunk(int device, int descriptor, std::size_t bytes) {
  (void)device_of(device, fmt::format("importing a chunk on cuda:{}", device));
  share();
  return memory_->import_chunk(device, descriptor, bytes);
}

NativeMemoryHandle SimDriver::export_memory(void* base) {
  share();
  return memory_->export_memory(base);
}

void* SimDriver::open_memory(int device, const NativeMemoryHandle& handle) {
  (void)device_of(device, fmt::format("opening another process's memory on cuda:{}", device));
  share();
  return memory_->open_memory(device, handle);
}

void SimDriver::close_memory(void* base) {
  // Work that still reads it comes first, as with memory of our own.
  devices_[static_cast<std::size_t>(memory_->imported_device(base))]->drain();
  memory_->close_memory(base);
}

bool SimDriver::supports_memory_pools(int device) {
  (void)device_of(device, "asking for memory pools");
  return true;
}

void* SimDriver::allocate_async(NativeStream stream, std::size_t bytes) {
  SimStream& s = stream_of(stream, "allocating in order of a stream");
  captures_.refuse(s, fmt::format("allocating {} bytes on {}", bytes, s.name()));
  return pools_[static_cast<std::size_t>(stream.device)]->allocate(s, bytes);
}

void SimDriver::deallocate_async(void* data, NativeStream stream) {
  if (data == nullptr) return;
  SimStream& s = stream_of(stream, "freeing in order of a stream");
  captures_.refuse(s, fmt::format("freeing {} on {}", data, s.name()));
  pools_[static_cast<std::size_t>(stream.device)]->deallocate(data, s);
}

void SimDriver::trim_pool(int device, std::size_t bytes_to_keep) {
  const SimDevice& d = device_of(device, "trimming the memory pool");
  pools_[static_cast<std::size_t>(d.index())]->trim(bytes_to_keep);
}

NativePoolMemory SimDriver::pool_memory(int device) {
  const SimDevice& d = device_of(device, "reading the memory pool");
  return pools_[static_cast<std::size_t>(d.index())]->usage();
}

void SimDriver::reset_pool_peaks(int device) {
  const SimDevice& d = device_of(device, "resetting the peaks of the memory pool");
  pools_[static_cast<std::size_t>(d.index())]->reset_peaks();
}

}  // namespace gantry::sim
