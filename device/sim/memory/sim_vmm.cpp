// Virtual memory: reservations, chunks and their mappings.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/assert.hpp"
#include "core/files/sealed_file.hpp"
#include "device/sim/devices/sim_error.hpp"
#include "device/sim/memory/sim_memory.hpp"

namespace gantry::sim {

namespace {

std::uintptr_t as_address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

void* as_pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

bool on_grain(std::size_t value) { return value % AddressSpace::kGranularity == 0; }

std::string name_of(NativeChunk chunk) {
  return fmt::format("chunk {}", static_cast<std::uint64_t>(chunk));
}

// Takes the pages away and keeps the addresses.
void block_range(std::uintptr_t address, std::size_t bytes, const std::string& doing) {
  const void* result = ::mmap(as_pointer(address), bytes, PROT_NONE,
                              MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (result == MAP_FAILED) fail(kOperatingSystem, doing, -1, std::strerror(errno));
}

}  // namespace

AddressSpace::Mappings::const_iterator AddressSpace::find_mapping(Address address) const {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return mappings_.end();
  --it;
  return address - it->first < it->second.bytes ? it : mappings_.end();
}

void AddressSpace::check_mapped(Address address, std::size_t bytes,
                                const std::string& doing) const {
  const Address end = address + bytes;
  while (address < end) {
    const auto it = find_mapping(address);
    if (it == mappings_.end()) {
      fail(kInvalidValue, doing, -1, fmt::format("nothing is mapped at {:#x}", address));
    }
    if (it->second.access == 0) {
      fail(kInvalidValue, doing, it->second.device,
           fmt::format("no device was given access to the mapping at {:#x}", address));
    }
    address = it->first + it->second.bytes;
  }
}

void AddressSpace::check_mapped_access(int device, Address address, std::size_t bytes,
                                       const std::string& doing) const {
  const Address end = address + bytes;
  while (address < end) {
    const auto it = find_mapping(address);
    if (it == mappings_.end()) {
      fail(kIllegalAddress, doing, device, fmt::format("nothing is mapped at {:#x}", address));
    }
    if (((it->second.access >> static_cast<unsigned>(device)) & 1) == 0) {
      fail(kIllegalAddress, doing, device,
           fmt::format("{:#x} belongs to cuda:{}, and the mapping gives cuda:{} no access", address,
                       it->second.device, device));
    }
    address = it->first + it->second.bytes;
  }
}

std::vector<AddressSpace::Address> AddressSpace::tiles(const void* address, std::size_t bytes,
                                                       const std::string& doing) const {
  std::vector<Address> bases;
  const Address begin = as_address(address);
  Address next = begin;
  for (auto it = mappings_.find(begin); it != mappings_.end() && it->first == next; ++it) {
    if (next - begin >= bytes) break;
    bases.push_back(next);
    next += it->second.bytes;
  }
  if (bytes == 0 || next - begin != bytes) {
    fail(kInvalidValue, doing, -1, "the range is not made of whole mappings");
  }
  return bases;
}

void* AddressSpace::reserve(std::size_t bytes, std::size_t alignment) {
  const std::string doing = fmt::format("reserving {} bytes of addresses", bytes);
  if (alignment == 0) alignment = kGranularity;
  if (bytes == 0 || !on_grain(bytes) || !std::has_single_bit(alignment) ||
      bytes > (SIZE_MAX >> 8) || alignment > (SIZE_MAX >> 8)) {
    fail(kInvalidValue, doing, -1,
         fmt::format("expected a multiple of {} bytes and a power of two as alignment, but got "
                     "{} and {}",
                     kGranularity, bytes, alignment));
  }
  alignment = std::max(alignment, kGranularity);
  const std::size_t padded = bytes + alignment;
  void* raw =
      ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) fail(kOperatingSystem, doing, -1, std::strerror(errno));
  const Address begin = as_address(raw);
  const Address base = (begin + alignment - 1) / alignment * alignment;
  if (base != begin) ::munmap(raw, base - begin);
  if (base + bytes != begin + padded) {
    ::munmap(as_pointer(base + bytes), begin + padded - (base + bytes));
  }
  const std::lock_guard lock(mutex_);
  extents_[base] = {Kind::reserved, bytes};
  return as_pointer(base);
}

void AddressSpace::release(void* address, std::size_t bytes) {
  const std::string doing = fmt::format("freeing {} reserved bytes at {}", bytes, address);
  const std::lock_guard lock(mutex_);
  const auto it = find_base(address, Kind::reserved, doing);
  if (it->second.bytes != bytes) {
    fail(kInvalidValue, doing, -1, fmt::format("{} bytes were reserved", it->second.bytes));
  }
  const auto mapping = mappings_.lower_bound(it->first);
  if (mapping != mappings_.end() && mapping->first < it->first + bytes) {
    fail(kInvalidValue, doing, -1, "there are chunks mapped in the range");
  }
  retire(it);
}

NativeChunk AddressSpace::create_chunk(int device, std::size_t bytes) {
  const std::string doing = fmt::format("creating a chunk of {} bytes on cuda:{}", bytes, device);
  if (bytes == 0 || !on_grain(bytes)) {
    fail(kInvalidValue, doing, device,
         fmt::format("expected a multiple of {} bytes", kGranularity));
  }
  SimDevice& owner = *devices_[static_cast<std::size_t>(device)];
  if (!owner.take(bytes)) return NativeChunk::none;
  int descriptor = -1;
  try {
    descriptor = create_memory_file("gantry device chunk", bytes, doing);
  } catch (...) {
    owner.give_back(bytes);
    throw;
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_chunk_++;
  chunks_[id] = {device, bytes, descriptor, false};
  return static_cast<NativeChunk>(id);
}

NativeChunk AddressSpace::import_chunk(int device, int descriptor, std::size_t bytes) {
  const std::string doing = fmt::format("importing a chunk of {} bytes on cuda:{}", bytes, device);
  struct stat status {};
  if (bytes == 0 || !on_grain(bytes) || ::fstat(descriptor, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != bytes) {
    fail(kInvalidValue, doing, device, "the descriptor names no chunk of this size");
  }
  if (!is_sealed(descriptor)) {
    fail(kInvalidValue, doing, device, "the descriptor names a file that its owner can shorten");
  }
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) fail(kOperatingSystem, doing, device, std::strerror(errno));
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_chunk_++;
  chunks_[id] = {device, bytes, own, true};
  return static_cast<NativeChunk>(id);
}

UniqueFd AddressSpace::export_chunk(NativeChunk chunk) const {
  const std::string doing = "exporting " + name_of(chunk);
  const std::shared_lock lock(mutex_);
  const auto it = chunks_.find(static_cast<std::uint64_t>(chunk));
  if (it == chunks_.end() || it->second.released) fail(kInvalidValue, doing);
  UniqueFd descriptor(::fcntl(it->second.descriptor, F_DUPFD_CLOEXEC, 0));
  if (!descriptor) fail(kOperatingSystem, doing, it->second.device, std::strerror(errno));
  return descriptor;
}

void AddressSpace::drop_if_unused(std::uint64_t id) {
  const auto it = chunks_.find(id);
  GANTRY_ASSERT(it != chunks_.end() && it->second.mappings >= 0,
                "a chunk was dropped while in use");
  const Chunk& chunk = it->second;
  if (!chunk.released || chunk.mappings > 0) return;
  ::close(chunk.descriptor);
  // Memory of another process is on that process's account.
  if (!chunk.imported) devices_[static_cast<std::size_t>(chunk.device)]->give_back(chunk.bytes);
  chunks_.erase(it);
}

void AddressSpace::release_chunk(NativeChunk chunk) {
  const auto id = static_cast<std::uint64_t>(chunk);
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(id);
  if (it == chunks_.end() || it->second.released) {
    fail(kInvalidValue, "releasing " + name_of(chunk), -1, "there is no such chunk");
  }
  it->second.released = true;
  drop_if_unused(id);
}

void AddressSpace::map(void* address, std::size_t bytes, NativeChunk chunk) {
  const std::string doing = fmt::format("mapping {} at {}", name_of(chunk), address);
  const auto id = static_cast<std::uint64_t>(chunk);
  const Address begin = as_address(address);
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(id);
  if (it == chunks_.end() || it->second.released) {
    fail(kInvalidValue, doing, -1, "there is no such chunk");
  }
  if (bytes != it->second.bytes) {
    fail(kInvalidValue, doing, it->second.device,
         fmt::format("expected the chunk's {} bytes, but got {}", it->second.bytes, bytes));
  }
  const auto extent = find(begin);
  if (!on_grain(begin) || extent == extents_.end() || extent->second.kind != Kind::reserved ||
      bytes > extent->second.bytes - (begin - extent->first)) {
    fail(kInvalidValue, doing, it->second.device, "the range is not inside one reservation");
  }
  const auto next = mappings_.lower_bound(begin);
  if (find_mapping(begin) != mappings_.end() ||
      (next != mappings_.end() && next->first < begin + bytes)) {
    fail(kInvalidValue, doing, it->second.device, "a chunk is mapped there already");
  }
  const void* result =
      ::mmap(address, bytes, PROT_NONE, MAP_FIXED | MAP_SHARED, it->second.descriptor, 0);
  if (result == MAP_FAILED) {
    fail(kOperatingSystem, doing, it->second.device, std::strerror(errno));
  }
  mappings_[begin] = {bytes, id, it->second.device};
  ++it->second.mappings;
}

void AddressSpace::unmap(void* address, std::size_t bytes) {
  const std::string doing = fmt::format("unmapping {} bytes at {}", bytes, address);
  const std::lock_guard lock(mutex_);
  const std::vector<Address> bases = tiles(address, bytes, doing);
  block_range(as_address(address), bytes, doing);
  for (const Address base : bases) {
    const std::uint64_t id = mappings_.at(base).chunk;
    mappings_.erase(base);
    GANTRY_ASSERT(chunks_.at(id).mappings > 0, "a chunk is unmapped more often than it was mapped");
    --chunks_.at(id).mappings;
    drop_if_unused(id);
  }
}

void AddressSpace::set_access(void* address, std::size_t bytes, std::span<const int> devices) {
  const std::string doing = fmt::format("setting access to {} bytes at {}", bytes, address);
  const std::lock_guard lock(mutex_);
  const std::vector<Address> bases = tiles(address, bytes, doing);
  std::uint64_t access = 0;
  for (const int device : devices) {
    if (device < 0 || static_cast<std::size_t>(device) >= devices_.size()) {
      fail(kInvalidDevice, doing, -1, fmt::format("there is no cuda:{}", device));
    }
    for (const Address base : bases) {
      const int owner = mappings_.at(base).device;
      if (device != owner && !peers_.allowed(device, owner)) {
        fail(kPeerAccessUnsupported, doing, device, fmt::format("the memory is cuda:{}'s", owner));
      }
    }
    access |= std::uint64_t{1} << static_cast<unsigned>(device);
  }
  if (::mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0) {
    fail(kOperatingSystem, doing, -1, std::strerror(errno));
  }
  for (const Address base : bases) mappings_.at(base).access |= access;
}

}  // namespace gantry::sim
