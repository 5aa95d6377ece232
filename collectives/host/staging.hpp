#pragma once

#include <cstddef>

#include <gantry/memory/buffer.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Page-locked host memory through which one array passes from or to the device, step by step.
//
// fetch() may be called for the next step before this one's data are dealt with: with two stagings
// that take turns, the copy engines and the links work side by side.
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

  // Orders `stream` behind the last use of this staging, on whatever stream it was.
  void begin(const Stream& stream);
  // Submits a copy from the device; `offset` counts from outbound().
  void fetch(std::size_t offset, const void* from, std::size_t bytes, const Stream& stream);
  // Marks what was submitted; the host may touch the areas once await() has returned.
  void fetched(const Stream& stream);
  // Blocks the host. Throws what the stream's earlier work raised.
  void await();
  // Submits a copy to the device. The host may not touch `from` until the next await().
  void deliver(void* to, const std::byte* from, std::size_t bytes, const Stream& stream);
  // Marks the end of this use.
  void finish(const Stream& stream);

 private:
  std::size_t bytes_;
  memory::Buffer memory_;
  Event fetched_;
  Event done_;
  bool was_used_ = false;
};

}  // namespace gantry
