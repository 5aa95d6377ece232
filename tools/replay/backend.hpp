// The allocators that a sequence can be replayed through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/memory/allocator.hpp>

namespace gantry::replay {

/// An allocator of one device, and what it holds.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual memory::Allocator& allocator() = 0;
  /// Bytes of blocks that were given out and not taken back.
  [[nodiscard]] virtual std::uint64_t allocated_bytes() = 0;
  /// Bytes held from the driver, now and at most since the last reset_peak.
  [[nodiscard]] virtual std::uint64_t reserved_bytes() = 0;
  [[nodiscard]] virtual std::uint64_t peak_reserved_bytes() = 0;
  virtual void reset_peak() = 0;
  /// Holds at most `bytes` from now on.
  virtual void set_limit(std::uint64_t bytes) = 0;
};

/// The values of --backend: vmm, native and async (the library's), cuda (the driver's own malloc
/// and free) and bump (hands out addresses and nothing else: the cost of replaying).
[[nodiscard]] const std::vector<std::string>& backend_names();

/// The backend `name` on `device`. The library has one backend per process, which the first call
/// chooses. Throws: InvalidArgument for an unknown name, or if the library uses another one
/// already.
[[nodiscard]] std::unique_ptr<Backend> make_backend(std::string_view name, Device device);

/// `configuration` (GANTRY_ALLOC_CONF) with `name` as its backend.
[[nodiscard]] std::string with_backend(std::string_view configuration, std::string_view name);

}  // namespace gantry::replay
