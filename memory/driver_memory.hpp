// Memory directly from the driver, past the caching allocators.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <gantry/extend/driver.hpp>

namespace gantry::memory {

// Note [Direct allocations]
// The allocators of this process hold most of a device's memory, and much of it is free in their
// caches. The driver counts cached memory as used. So a direct allocation can fail although the
// caches hold enough free memory.
// Every direct allocation goes through this file, which makes the caches release the missing bytes;
// check.direct_allocations finds other ones. Steps, until the driver has the memory:
//   1. call the driver;
//   2. release memory that no stream uses, and memory of other processes and layers;
//   3. repeat both while streams still use free memory, for some seconds at most;
//   4. throw an OutOfMemoryError with the whole breakdown.
// No step synchronizes with the device, because its work may wait for the caller's next action, as
// a kernel of a collective does.

/// Calls driver().allocate() for `purpose` ("the communicator's workspace"). Never null.
/// Throws: OutOfMemoryError; CudaError.
[[nodiscard]] void* allocate_from_driver(int device, std::size_t bytes, std::string_view purpose);
/// Likewise, driver().create_chunk().
[[nodiscard]] NativeChunk create_chunk_from_driver(int device, std::size_t bytes,
                                                   std::string_view purpose);
/// Gives memory of allocate_from_driver() back. Throws: CudaError.
void deallocate_to_driver(int device, void* data);
/// Calls driver().allocate_pinned(). Never null. Throws: OutOfMemoryError; CudaError.
[[nodiscard]] void* allocate_pinned_from_driver(std::size_t bytes, std::string_view purpose);
/// Calls driver().register_host(); if it fails, releases cached pinned memory and calls it again.
[[nodiscard]] bool register_host_with_driver(void* data, std::size_t bytes);
/// Throws OutOfMemoryError for `bytes` that `purpose` needs, with the device's whole breakdown.
[[noreturn]] void throw_out_of_memory(int device, std::size_t bytes, std::string_view purpose);
/// Lets calls of the driver that are short of memory, and captures, find the memory that the heaps
/// of this process cache. To be called once.
void offer_cached_memory() noexcept;
/// Releases cached memory if the driver has less than `bytes`, for a library that calls the driver
/// itself. Waits for nothing.
void make_room(int device, std::size_t bytes) noexcept;

/// An owner of device memory from the driver.
class DriverMemory {
 public:
  DriverMemory() = default;
  /// Throws: as allocate_from_driver().
  DriverMemory(int device, std::size_t bytes, std::string_view purpose)
      : data_(allocate_from_driver(device, bytes, purpose), Deallocate{device}) {}

  [[nodiscard]] void* data() const { return data_.get(); }
  /// Releases the memory, after all work of the device. A failure is logged.
  void reset() noexcept { data_.reset(); }
  /// Returns the memory and gives up ownership.
  void* release() noexcept { return data_.release(); }

 private:
  struct Deallocate {
    int device;
    void operator()(void* data) const noexcept;
  };

  std::unique_ptr<void, Deallocate> data_;
};

}  // namespace gantry::memory
