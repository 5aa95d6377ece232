#include "device/sim/memory/sim_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "core/assert.hpp"
#include "core/files/sealed_file.hpp"
#include "device/sim/devices/sim_error.hpp"

namespace gantry::sim {

namespace {

// How much freed address space keeps its guard.
constexpr std::size_t kMaxFreedExtents = 1024;
constexpr std::size_t kMaxFreedBytes = std::size_t{16} << 30;

std::string text_of(const void* data) { return fmt::format("{}", data); }

void* as_pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::uintptr_t as_address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::string range_text(const void* data, std::size_t bytes) {
  return fmt::format("{} bytes at {}", bytes, data);
}

}  // namespace

std::size_t round_to_pages(std::size_t bytes) {
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + kPage - 1) / kPage * kPage;
}

int create_memory_file(const char* name, std::size_t bytes, const std::string& doing) {
  const int descriptor = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) fail(kOperatingSystem, doing, -1, std::strerror(errno));
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int reason = errno;
    ::close(descriptor);
    fail(kOperatingSystem, doing, -1, std::strerror(reason));
  }
  if (::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int reason = errno;
    ::close(descriptor);
    fail(kOperatingSystem, doing, -1, std::strerror(reason));
  }
  return descriptor;
}

AddressSpace::~AddressSpace() {
  for (const auto& [base, mapping] : mappings_) ::munmap(as_pointer(base), mapping.bytes);
  for (const auto& [base, extent] : extents_) {
    if (extent.foreign) continue;
    ::munmap(as_pointer(base), extent.bytes);
    if (extent.descriptor >= 0) ::close(extent.descriptor);
  }
  for (const auto& [id, chunk] : chunks_) ::close(chunk.descriptor);
}

void* AddressSpace::allocate(int device, std::size_t bytes) {
  const std::string doing = fmt::format("allocating {} bytes on cuda:{}", bytes, device);
  if (bytes == 0) fail(kInvalidValue, doing, device);
  SimDevice& owner = *devices_[static_cast<std::size_t>(device)];
  // Past this no rounding overflows.
  if (bytes > owner.memory_info().total) return nullptr;
  const std::size_t rounded = round_to_pages(bytes);
  if (!owner.take(rounded)) return nullptr;
  int descriptor = -1;
  try {
    descriptor = create_memory_file("gantry device memory", rounded, doing);
    void* data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) fail(kOperatingSystem, doing, device, std::strerror(errno));
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(find(as_address(data)) == extents_.end(), "new memory lies in memory in use");
    extents_[as_address(data)] = {Kind::allocation, rounded, device, descriptor};
    return data;
  } catch (...) {
    if (descriptor >= 0) ::close(descriptor);
    owner.give_back(rounded);
    throw;
  }
}

void* AddressSpace::allocate_pinned(std::size_t bytes) {
  if (bytes == 0) fail(kInvalidValue, "allocating 0 bytes of pinned host memory");
  if (bytes > (SIZE_MAX >> 2)) return nullptr;
  const std::size_t rounded = round_to_pages(bytes);
  void* data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  const std::lock_guard lock(mutex_);
  extents_[as_address(data)] = {Kind::pinned, rounded};
  return data;
}

AddressSpace::Extents::const_iterator AddressSpace::find(Address address) const {
  auto it = extents_.upper_bound(address);
  if (it == extents_.begin()) return extents_.end();
  --it;
  return address - it->first < it->second.bytes ? it : extents_.end();
}

AddressSpace::Extents::const_iterator AddressSpace::find_base(const void* base, Kind kind,
                                                              const std::string& doing) const {
  const auto it = extents_.find(as_address(base));
  if (it != extents_.end() && it->second.kind == Kind::freed) {
    fail(kInvalidValue, doing, -1, "the memory was freed before");
  }
  if (it == extents_.end() || it->second.kind != kind) {
    fail(kInvalidValue, doing, -1, "the address is not the begin of such memory");
  }
  return it;
}

void AddressSpace::check_allocation(int device, const void* data) const {
  const std::string doing = fmt::format("freeing {} on cuda:{}", data, device);
  const std::shared_lock lock(mutex_);
  const auto it = find_base(data, Kind::allocation, doing);
  if (it->second.device != device) {
    fail(kInvalidValue, doing, device,
         fmt::format("the memory belongs to cuda:{}", it->second.device));
  }
}

void AddressSpace::check_pinned(const void* data) const {
  const std::shared_lock lock(mutex_);
  const std::string doing = "freeing pinned host memory at " + text_of(data);
  if (find_base(data, Kind::pinned, doing)->second.foreign) {
    fail(kInvalidValue, doing, -1, "the memory was page-locked by register_host");
  }
}

void AddressSpace::deallocate(int device, void* data) {
  const std::lock_guard lock(mutex_);
  const auto it = find_base(data, Kind::allocation, "freeing " + text_of(data));
  devices_[static_cast<std::size_t>(device)]->give_back(it->second.bytes);
  retire(it);
}

void AddressSpace::deallocate_pinned(void* data) {
  const std::lock_guard lock(mutex_);
  retire(find_base(data, Kind::pinned, "freeing pinned host memory at " + text_of(data)));
}

void AddressSpace::retire(Extents::const_iterator extent) {
  const Address base = extent->first;
  const std::size_t bytes = extent->second.bytes;
  GANTRY_ASSERT(std::ranges::find(freed_, base) == freed_.end(), "memory is freed twice");
  if (extent->second.descriptor >= 0) ::close(extent->second.descriptor);
  const void* guard = ::mmap(as_pointer(base), bytes, PROT_NONE,
                             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (guard == MAP_FAILED) {
    ::munmap(as_pointer(base), bytes);
    extents_.erase(extent);
    return;
  }
  extents_[base] = {Kind::freed, bytes};
  freed_.push_back(base);
  freed_bytes_ += bytes;
  while (freed_.size() > kMaxFreedExtents || freed_bytes_ > kMaxFreedBytes) {
    const auto oldest = extents_.find(freed_.front());
    GANTRY_ASSERT(oldest != extents_.end() && oldest->second.kind == Kind::freed,
                  "the list of freed memory has memory in use");
    GANTRY_ASSERT(freed_bytes_ >= oldest->second.bytes, "freed memory is not counted");
    ::munmap(as_pointer(oldest->first), oldest->second.bytes);
    freed_bytes_ -= oldest->second.bytes;
    extents_.erase(oldest);
    freed_.pop_front();
  }
}

PointerInfo AddressSpace::info(const void* data) const {
  const Address address = as_address(data);
  const std::shared_lock lock(mutex_);
  const auto it = find(address);
  if (it == extents_.end()) return {};
  switch (it->second.kind) {
    case Kind::allocation:
    case Kind::imported:
    case Kind::pooled:
      return {PointerKind::device, it->second.device, true};
    case Kind::pinned:
      return {PointerKind::pinned};
    case Kind::reserved:
      if (const auto mapping = find_mapping(address); mapping != mappings_.end()) {
        return {PointerKind::device, mapping->second.device};
      }
      return {};
    case Kind::freed:
      return {};
  }
  __builtin_unreachable();
}

Place AddressSpace::place(const void* data, std::size_t bytes, const std::string& doing) const {
  const Address address = as_address(data);
  const std::shared_lock lock(mutex_);
  const auto it = find(address);
  if (it == extents_.end()) return Place::pageable;
  const Extent& extent = it->second;
  if (extent.kind == Kind::freed) {
    fail(kInvalidValue, doing, -1, range_text(data, bytes) + " were freed before");
  }
  if (bytes > extent.bytes - (address - it->first)) {
    fail(kInvalidValue, doing, extent.device,
         range_text(data, bytes) + " reach past the end of their allocation");
  }
  if (extent.kind == Kind::pinned) return Place::pinned;
  if (extent.kind == Kind::reserved) check_mapped(address, bytes, doing);
  return Place::device;
}

void AddressSpace::check_access(int device, const void* data, std::size_t bytes,
                                const std::string& doing) const {
  if (bytes == 0) return;
  const Address address = as_address(data);
  const std::shared_lock lock(mutex_);
  const auto it = find(address);
  if (it == extents_.end()) {
    fail(kInvalidValue, doing, device, range_text(data, bytes) + " are host memory, not pinned");
  }
  const Extent& extent = it->second;
  if (extent.kind == Kind::freed) {
    fail(kIllegalAddress, doing, device, range_text(data, bytes) + " were freed before");
  }
  if (bytes > extent.bytes - (address - it->first)) {
    fail(kIllegalAddress, doing, device,
         range_text(data, bytes) + " reach past the end of their allocation");
  }
  switch (extent.kind) {
    case Kind::allocation:
    case Kind::pooled:
      if (!peers_.enabled(device, extent.device)) {
        fail(kIllegalAddress, doing, device,
             fmt::format("{} belong to cuda:{}, and peer access from cuda:{} is not enabled",
                         range_text(data, bytes), extent.device, device));
      }
      return;
    case Kind::imported:
      // Opened for one device; with peer access enabled its peers reach it as their own.
      if (!peers_.enabled(device, extent.device)) {
        fail(kIllegalAddress, doing, device,
             fmt::format("{} were opened for cuda:{}, and peer access from cuda:{} is not enabled",
                         range_text(data, bytes), extent.device, device));
      }
      return;
    case Kind::reserved:
      check_mapped_access(device, address, bytes, doing);
      return;
    case Kind::pinned:
    case Kind::freed:
      return;
  }
}

NativeMemoryHandle AddressSpace::export_memory(const void* base) const {
  const std::shared_lock lock(mutex_);
  const auto it = find_base(base, Kind::allocation, "exporting device memory at " + text_of(base));
  return encode({name_file(it->second.descriptor), it->second.bytes});
}

void* AddressSpace::open_memory(int device, const NativeMemoryHandle& handle) {
  std::string doing = fmt::format("opening another process's memory on cuda:{}", device);
  const MemoryName name = decode(handle, doing, device);
  doing = fmt::format("opening memory of process {} on cuda:{}", name.file.process.pid, device);
  if (name.file.process == this_process()) {
    fail(kDeviceUninitialized, doing, device, "this process exported it");
  }
  const std::lock_guard lock(mutex_);
  for (auto& [base, extent] : extents_) {
    if (extent.kind == Kind::imported && extent.device == device && extent.source == name) {
      ++extent.references;
      return as_pointer(base);
    }
  }
  const int descriptor = open_file(name.file, doing, device);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != name.bytes || !is_sealed(descriptor)) {
    ::close(descriptor);
    fail(kInvalidValue, doing, device,
         fmt::format("the handle names no memory of {} bytes that keeps its size", name.bytes));
  }
  void* data = ::mmap(nullptr, name.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int reason = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) fail(kOperatingSystem, doing, device, std::strerror(reason));
  extents_[as_address(data)] = {Kind::imported, name.bytes, device, -1, 1, name};
  return data;
}

int AddressSpace::imported_device(const void* base) const {
  const std::shared_lock lock(mutex_);
  return find_base(base, Kind::imported, "closing another process's memory at " + text_of(base))
      ->second.device;
}

void AddressSpace::close_memory(void* base) {
  const std::lock_guard lock(mutex_);
  const auto it =
      find_base(base, Kind::imported, "closing another process's memory at " + text_of(base));
  GANTRY_ASSERT(it->second.references > 0, "memory is open that nobody opened");
  if (--extents_[it->first].references == 0) retire(it);
}

}  // namespace gantry::sim
