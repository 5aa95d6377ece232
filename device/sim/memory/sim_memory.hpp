// The addresses of all simulated devices: what lies where, and which devices may access it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/sim/devices/sim_device.hpp"
#include "device/sim/memory/sim_ipc.hpp"

namespace gantry::sim {

/// Where the bytes of a copy lie.
enum class Place { pageable, pinned, device };

/// Every range of memory that the driver made. Its lock is taken on host threads only, shared by
/// look-ups, so that look-ups order nothing.
///
/// A freed range stays reserved without access for a while: a late access faults at the place of
/// the crime, and a late call is refused by name.
/// Thread safety: every member may be called from any host thread.
class AddressSpace {
 public:
  AddressSpace(std::span<const std::unique_ptr<SimDevice>> devices, const PeerTable& peers)
      : devices_(devices), peers_(peers) {}
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  [[nodiscard]] void* allocate(int device, std::size_t bytes);
  [[nodiscard]] void* allocate_pinned(std::size_t bytes);
  /// What the check_ functions throw, deallocate would: call them before waiting for the device.
  void check_allocation(int device, const void* data) const;
  void check_pinned(const void* data) const;
  void deallocate(int device, void* data);
  void deallocate_pinned(void* data);

  // Host memory of the caller
  /// Throws: CudaError 1 unless these are whole pages, 712 if part of them is known already.
  void register_host(void* data, std::size_t bytes);
  /// Throws: CudaError 713.
  void check_registered(const void* data) const;
  void unregister_host(const void* data);

  // Pieces of the pools, which map them
  void add_pooled(void* data, std::size_t bytes, int device);
  /// A piece that is not live may not be named in a call.
  void set_pooled(const void* data, bool live);
  void remove_pooled(const void* data);

  [[nodiscard]] PointerInfo info(const void* data) const;
  /// Where [data, data + bytes) lies. Throws: CudaError 1 for a range that is freed, not mapped or
  /// too short.
  [[nodiscard]] Place place(const void* data, std::size_t bytes, const std::string& doing) const;
  /// Throws as sim::check_device_access.
  void check_access(int device, const void* data, std::size_t bytes,
                    const std::string& doing) const;

  // Virtual memory
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;
  [[nodiscard]] void* reserve(std::size_t bytes, std::size_t alignment);
  void release(void* address, std::size_t bytes);
  [[nodiscard]] NativeChunk create_chunk(int device, std::size_t bytes);
  void release_chunk(NativeChunk chunk);
  void map(void* address, std::size_t bytes, NativeChunk chunk);
  void unmap(void* address, std::size_t bytes);
  void set_access(void* address, std::size_t bytes, std::span<const int> devices);
  [[nodiscard]] UniqueFd export_chunk(NativeChunk chunk) const;
  [[nodiscard]] NativeChunk import_chunk(int device, int descriptor, std::size_t bytes);

  // Other processes
  [[nodiscard]] NativeMemoryHandle export_memory(const void* base) const;
  [[nodiscard]] void* open_memory(int device, const NativeMemoryHandle& handle);
  /// The device for which `base` was opened. Throws: CudaError 1 if it was not.
  [[nodiscard]] int imported_device(const void* base) const;
  void close_memory(void* base);

 private:
  enum class Kind : std::uint8_t { allocation, imported, pooled, pinned, reserved, freed };
  struct Extent {
    Kind kind;
    std::size_t bytes;
    int device = -1;
    int descriptor = -1;
    int references = 1;      ///< of imported memory
    MemoryName source = {};  ///< of imported memory
    bool foreign = false;    ///< pinned by register_host: the pages are the caller's
  };
  struct Chunk {
    int device;
    std::size_t bytes;
    int descriptor;
    bool imported;
    bool released = false;
    int mappings = 0;
  };
  struct Mapping {
    std::size_t bytes;
    std::uint64_t chunk;
    int device;
    std::uint64_t access = 0;  ///< one bit per device
  };
  using Address = std::uintptr_t;
  using Extents = std::map<Address, Extent>;
  using Mappings = std::map<Address, Mapping>;

  [[nodiscard]] Extents::const_iterator find(Address address) const;
  [[nodiscard]] Extents::const_iterator find_base(const void* base, Kind kind,
                                                  const std::string& doing) const;
  [[nodiscard]] Mappings::const_iterator find_mapping(Address address) const;
  /// Throws: CudaError 1 unless chunks with some access are mapped under the whole range.
  void check_mapped(Address address, std::size_t bytes, const std::string& doing) const;
  [[nodiscard]] std::vector<Address> tiles(const void* address, std::size_t bytes,
                                           const std::string& doing) const;
  void check_mapped_access(int device, Address address, std::size_t bytes,
                           const std::string& doing) const;
  void retire(Extents::const_iterator extent);
  void drop_if_unused(std::uint64_t id);

  const std::span<const std::unique_ptr<SimDevice>> devices_;
  const PeerTable& peers_;

  mutable std::shared_mutex mutex_;
  Extents extents_;
  Mappings mappings_;
  std::unordered_map<std::uint64_t, Chunk> chunks_;
  std::uint64_t next_chunk_ = 1;
  std::deque<Address> freed_;
  std::size_t freed_bytes_ = 0;
};

/// `bytes` rounded up to whole pages.
[[nodiscard]] std::size_t round_to_pages(std::size_t bytes);
/// Anonymous shared memory that has a descriptor, and that no process can shorten. Throws:
/// CudaError 304.
[[nodiscard]] int create_memory_file(const char* name, std::size_t bytes, const std::string& doing);

}  // namespace gantry::sim
