// Functions of other layers that follow the chunks of address ranges.
#pragma once

#include <cstddef>
#include <span>

#include "core/callbacks.hpp"
#include "memory/arenas/chunk_store.hpp"

namespace gantry::memory {

/// Chunks that were mapped side by side.
struct MappedChunks {
  std::byte* range = nullptr;  ///< the first address of the whole range
  std::size_t range_bytes = 0;
  std::byte* address = nullptr;  ///< of the first chunk
  std::span<const Chunk> chunks{};

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks) sum += chunk.bytes;
    return sum;
  }
};

/// Called after chunks were mapped, before a block uses them; may wait for other processes. False:
/// they must not be used there, and are unmapped again. The caller holds no lock of the heap.
using MapCallback = bool (*)(const MappedChunks& mapped) noexcept;
/// Called before chunks leave `bytes` at `address`: no work uses them any more. The caller holds
/// the lock of the address range.
using UnmapCallback = void (*)(std::byte* address, std::size_t bytes) noexcept;
/// Called after chunks were released: waits for a while for processes that still have them mapped,
/// so that the driver has their memory. The caller holds no lock of the heap.
using ReleaseCallback = void (*)() noexcept;

/// The callbacks of this process.
struct MappingCallbacks {
  /// Never destroyed: memory is unmapped while the process exits.
  [[nodiscard]] static MappingCallbacks& instance() noexcept;

  Callbacks<MapCallback> mapped;
  Callbacks<UnmapCallback> unmapping;
  Callbacks<ReleaseCallback> released;
};

}  // namespace gantry::memory
