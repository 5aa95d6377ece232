// Memory that is not the caching allocators': straight from the driver, after what they keep.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <gantry/extend/driver.hpp>

namespace gantry::memory {

// Note [Direct allocations]
// The allocators of this process hold most of a device, and much of that is free in their caches.
// The driver knows nothing of it, so an allocation past the caches fails on a device that has room.
// Every such allocation goes through this file, which makes the caches give back what is missing;
// check.direct_allocations finds those that do not. Steps, until the driver has the memory:
//   1. ask the driver;
//   2. release what no stream uses any more, and what other processes and layers above gave up;
//   3. the same again and again while streams use free memory, for some seconds at most;
//   4. an OutOfMemoryError with the whole breakdown.
// No step waits for the device as such: work there may wait for what the caller does next, a
// collective's kernel for one.

/// Device memory for `purpose` ("the communicator's workspace"), as driver().allocate() has it.
/// Never null. Throws: OutOfMemoryError; CudaError.
[[nodiscard]] void* allocate_from_driver(int device, std::size_t bytes, std::string_view purpose);
/// The same as driver().create_chunk() has it.
[[nodiscard]] NativeChunk create_chunk_from_driver(int device, std::size_t bytes,
                                                   std::string_view purpose);
/// Page-locked host memory, as driver().allocate_pinned() has it. Never null.
/// Throws: OutOfMemoryError; CudaError.
[[nodiscard]] void* allocate_pinned_from_driver(std::size_t bytes, std::string_view purpose);
/// As driver().register_host(), for which pinned memory in the cache is given back if need be.
[[nodiscard]] bool register_host_with_driver(void* data, std::size_t bytes);
/// Throws OutOfMemoryError for `bytes` that `purpose` needs, with the device's whole breakdown.
[[noreturn]] void throw_out_of_memory(int device, std::size_t bytes, std::string_view purpose);
/// Makes caches give memory back until the driver has `bytes`, for a library that allocates by
/// itself. Waits for nothing.
void make_room(int device, std::size_t bytes) noexcept;

/// An owner of device memory from the driver.
class DriverMemory {
 public:
  DriverMemory() = default;
  /// Throws: as allocate_from_driver().
  DriverMemory(int device, std::size_t bytes, std::string_view purpose)
      : device_(device), data_(allocate_from_driver(device, bytes, purpose)) {}
  DriverMemory(DriverMemory&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  DriverMemory& operator=(DriverMemory&& other) noexcept {
    if (this != &other) {
      reset();
      device_ = other.device_;
      data_ = std::exchange(other.data_, nullptr);
    }
    return *this;
  }
  ~DriverMemory() { reset(); }

  [[nodiscard]] void* data() const { return data_; }
  /// Gives it back, after all work of the device. A failure is logged.
  void reset() noexcept;
  /// Gives up the memory, which stays for good.
  void* release() noexcept { return std::exchange(data_, nullptr); }

 private:
  int device_ = 0;
  void* data_ = nullptr;
};

}  // namespace gantry::memory
