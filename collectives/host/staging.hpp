#pragma once

#include <cstddef>

#include <gantry/memory/buffer.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Page-locked host memory through which the chunks of an array pass from and to the device.
//
// fetch() may be called for the next chunk before this one is processed. With two stagings that
// alternate, copy engines and links run concurrently.
class HostStaging {
 public:
  // Two areas of `bytes` each. Throws: OutOfMemoryError.
  explicit HostStaging(std::size_t bytes);
  ~HostStaging();
  HostStaging(HostStaging&&) = default;
  HostStaging& operator=(HostStaging&&) = delete;

  std::size_t bytes() const { return bytes_; }
  std::byte* outbound() const { return static_cast<std::byte*>(memory_.data()); }
  std::byte* inbound() const { return outbound() + bytes_; }

  // Orders `stream` after the last use of this staging, on any stream.
  void begin(const Stream& stream);
  // Submits a copy from the device; `offset` counts from outbound().
  void fetch(std::size_t offset, const void* from, std::size_t bytes, const Stream& stream);
  // Records an event after the fetches. The host may access the areas once await() has returned.
  void fetched(const Stream& stream);
  // Blocks the host until the fetches are done. Throws errors of the stream's earlier work.
  void await();
  // Submits a copy to the device. The host may not access `from` until the next await().
  void deliver(void* to, const std::byte* from, std::size_t bytes, const Stream& stream);
  // Records the end of this use.
  void finish(const Stream& stream);

 private:
  std::size_t bytes_;
  memory::Buffer memory_;
  Event fetched_;
  Event done_;
  bool was_used_ = false;
};

}  // namespace gantry
