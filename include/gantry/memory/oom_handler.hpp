#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

class OomFunction;

/// A function of add_oom_handler(), which the destructor removes.
///
/// Move-only. Thread safety: one thread at a time.
/// @code
/// memory::OomHandler handler = memory::add_oom_handler([](Device, std::size_t) { return false; });
/// handler.remove();
/// @endcode
/// @since 0.3
class GANTRY_API OomHandler {
 public:
  OomHandler(OomHandler&& other) noexcept;             ///< Takes the function of `other`.
  OomHandler& operator=(OomHandler&& other) noexcept;  ///< Calls remove() first.
  /// Calls remove().
  ~OomHandler();

  /// Removes the function. When it returns, no other thread is inside a call of the function, and
  /// there will be no further call. Has no effect on a handler that was removed or moved from.
  void remove() noexcept;

 private:
  friend GANTRY_API OomHandler add_oom_handler(std::function<bool(Device, std::size_t)> handler);
  explicit OomHandler(std::shared_ptr<OomFunction> function) noexcept;

  std::shared_ptr<OomFunction> function_;
};

/// Adds a function that may free memory when an allocation finds none: it gets the device and the
/// bytes of the request. If it returns true, the allocation searches again. A function that
/// returned true, but freed nothing, is not called again for the same request. When no function
/// returns true, the allocation throws OutOfMemoryError.
///
/// Functions are called one after the other, the newest first, until one returns true. gantry has
/// released all its caches before, and holds no lock. The function runs in the thread that
/// allocates, also during captures. It may call gantry, and then gets memory of the common pool.
/// Allocations inside of it call no function. Its exceptions are logged and count as false.
/// Requests beyond the device's memory, or beyond set_fraction(), call none.
/// Throws: InvalidArgument for an empty function. Thread safety: any thread.
/// @code
/// std::vector<Tensor> cache{ones({1024}, "cuda:0")};
/// const memory::OomHandler handler = memory::add_oom_handler([&](Device, std::size_t) {
///   const bool has_freed = !cache.empty();
///   cache.clear();
///   return has_freed;  // search again
/// });
/// @endcode
/// @since 0.3
[[nodiscard]] GANTRY_API OomHandler
add_oom_handler(std::function<bool(Device device, std::size_t bytes)> handler);

}  // namespace gantry::memory
