// The built-in allocators of device memory: their names and traits, and their interface.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

namespace gantry::memory {

/// A way to get the memory of devices, which GANTRY_ALLOC_CONF=backend:… selects.
///
/// A new backend is a row here; its traits choose the allocator in memory/backends.cpp.
struct Backend {
  std::string_view name;
  bool maps_chunks;           ///< into address ranges, where the device can; else it has segments
  bool is_of_driver;          ///< the driver keeps the memory: no segments, no events, slow figures
  std::string_view of_torch;  ///< another name of it, in torch's configuration; empty: none
};

inline constexpr std::array kBackends{
    Backend{.name = "vmm", .maps_chunks = true, .is_of_driver = false, .of_torch = ""},
    Backend{.name = "native", .maps_chunks = false, .is_of_driver = false, .of_torch = ""},
    Backend{
        .name = "async", .maps_chunks = false, .is_of_driver = true, .of_torch = "cudaMallocAsync"},
};

/// The backend with this name, or this name in torch; nullptr if there is none.
[[nodiscard]] constexpr const Backend* find_backend(std::string_view name) {
  const auto found = std::find_if(kBackends.begin(), kBackends.end(), [&](const Backend& backend) {
    return backend.name == name || (!name.empty() && backend.of_torch == name);
  });
  return found == kBackends.end() ? nullptr : found;
}

/// The outcome of a release of memory for the driver.
enum class DriverRelease : std::uint8_t {
  none,      ///< no memory is free
  none_yet,  ///< streams still work with the memory that is free
  some,
};

/// An allocator of device memory with statistics and a limit. `device` is a checked index.
/// Thread safety: every member may be called from any thread.
class DeviceAllocator : public Allocator {
 public:
  [[nodiscard]] virtual Stats stats(int device) = 0;
  virtual void reset_peak_stats(int device) = 0;
  /// Limits the memory held on the device to a share of its memory.
  virtual void set_fraction(double fraction, int device) = 0;
  [[nodiscard]] virtual double fraction(int device) = 0;
  /// Releases unused memory, for a driver that is short of it; see Note [Memory of the driver].
  /// Waits for nothing.
  [[nodiscard]] virtual DriverRelease release_for_driver(int device) noexcept = 0;
  /// Finds out how far streams are: in a capture that is about to begin, less can be found out.
  virtual void prepare_for_capture() noexcept = 0;
  /// Asserts what holds between two calls; no other thread may call meanwhile.
  virtual void verify() = 0;
};

}  // namespace gantry::memory
