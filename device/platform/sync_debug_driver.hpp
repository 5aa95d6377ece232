// Finds calls that block the host.
#pragma once

#include <string>

#include <gantry/extend/forwarding_driver.hpp>

namespace gantry {

/// The reaction to a call that blocks the host.
enum class HostBlocking : int { allowed, warned, refused };

/// The mode of the process. `allowed` takes the decorator out of the driver's way.
void set_host_blocking(HostBlocking mode);
[[nodiscard]] HostBlocking host_blocking() noexcept;
/// Takes GANTRY_SYNC_DEBUG, if the program has set no mode. Throws: InvalidArgument.
void apply_sync_debug_variable();

/// For a wait of the host that makes no blocking call of the driver: warns or throws as the mode
/// asks for. `doing` says what waits: "waiting for a collective operation".
void announce_host_wait(const char* doing);

/// A scope in which blocking calls are warned about at most: gantry would leave memory in use, or
/// an object half made, if they were refused.
class BlockingIsNeeded {
 public:
  BlockingIsNeeded() noexcept;
  ~BlockingIsNeeded();
  BlockingIsNeeded(const BlockingIsNeeded&) = delete;
  BlockingIsNeeded& operator=(const BlockingIsNeeded&) = delete;
};

/// Sees every call that blocks the host, and warns or throws before it is made.
///
/// These are: synchronization with a device, a stream or an event; copies from or to pageable
/// memory, and between page-locked memory; frees that wait for the device. Frees are warned about
/// at most, because a refused one would leak.
class SyncDebugDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  void synchronize_device(int device) override;
  void synchronize_stream(NativeStream stream) override;
  void synchronize_event(NativeEvent event) override;
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override;
  void deallocate(int device, void* data) override;
  void deallocate_pinned(void* data) override;
  void unregister_host(void* data) override;
  void close_memory(void* base) override;
};

}  // namespace gantry
