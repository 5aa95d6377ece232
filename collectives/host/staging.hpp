#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gantry/memory/buffer.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/host/entry.hpp"

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

// The size of a chunk. A large message between two ranks is sent in chunks: each is a frame with
// data behind it, in one range of page-locked memory.
inline constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
// The offset of the data, aligned for the copy engine.
inline constexpr std::size_t kChunkDataOffset = 256;
static_assert(sizeof(HostFrame) <= kChunkDataOffset);

// Returns the range of a chunk with `bytes` of data in `memory`.
inline std::span<std::byte> chunk_range(std::byte* memory, std::size_t bytes) {
  return {memory + kChunkDataOffset - sizeof(HostFrame), sizeof(HostFrame) + bytes};
}

inline void write_chunk_frame(std::byte* memory, const Descriptor& what) {
  const HostFrame frame{.what = what, .kind = HostFrame::Kind::chunk};
  std::memcpy(memory + kChunkDataOffset - sizeof frame, &frame, sizeof frame);
}

inline HostFrame read_frame(std::span<const std::byte> range) {
  HostFrame frame;
  std::memcpy(&frame, range.data(), sizeof frame);
  return frame;
}

// Returns the size of the chunk that begins at `begin`.
inline std::size_t chunk_bytes(std::int64_t bytes, std::int64_t begin) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(bytes - begin, 0, kChunkBytes));
}

}  // namespace gantry
