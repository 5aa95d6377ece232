// Memory of all devices' allocators and their history, as data and as files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/core/frames.hpp>
#include <gantry/core/macros.hpp>

namespace gantry::memory {

using gantry::Frame;
using gantry::Frames;

/// The use of a block of a segment.
/// @since 0.1
enum class BlockState : std::uint8_t {
  active_allocated,     ///< live
  active_pending_free,  ///< freed; other streams or processes use it
  inactive,             ///< free
};

/// A piece of a segment. All sizes in bytes.
/// @since 0.1
struct BlockInfo {
  std::uintptr_t address = 0;  ///< of the first byte
  std::size_t bytes = 0;       ///< size, rounded to the allocator's grain
  std::size_t requested = 0;   ///< bytes that the caller requested; 0 if the block is free
  BlockState state = BlockState::inactive;  ///< use
  std::uint64_t stream = 0;                 ///< the stream it belongs to
  Frames frames{};  ///< call stack of the allocation, if history was recorded then

  bool operator==(const BlockInfo&) const = default;
};

/// Memory held from the driver: one driver allocation, or one contiguous mapped range of addresses.
/// @since 0.1
struct SegmentInfo {
  int device = 0;                   ///< index of the device
  std::uintptr_t address = 0;       ///< of the first byte
  std::size_t total_bytes = 0;      ///< size, with free blocks
  std::size_t allocated_bytes = 0;  ///< in live blocks
  std::size_t active_bytes = 0;     ///< in live blocks and in freed ones that are in use
  std::size_t requested_bytes = 0;  ///< that callers asked for, in the active blocks
  std::uint64_t stream = 0;         ///< id of the stream that it was allocated for
  bool small = false;               ///< serves blocks up to 1 MiB only
  std::pair<std::int64_t, std::int64_t>
      pool_id{};               ///< {0, 0}: the common pool; {n, 0}: a capture's; {0, n}: a MemPool
  bool is_expandable = false;  ///< grows and shrinks by mapping
  Frames frames{};  ///< of its allocation, if history was recorded then; none if expandable
  std::vector<BlockInfo> blocks{};  ///< by address, without gaps

  bool operator==(const SegmentInfo&) const = default;
};

/// The kind of an event.
/// @since 0.1
enum class TraceAction : std::uint8_t {
  alloc,           ///< a block was allocated
  free_requested,  ///< a block was freed by its user
  free_completed,  ///< no stream or process uses a freed block any more
  segment_alloc,   ///< memory was allocated from the driver
  segment_free,    ///< memory was released to the driver
  segment_map,     ///< memory was mapped into a range of addresses
  segment_unmap,   ///< memory was unmapped from a range of addresses
  snapshot,        ///< snapshot() was called
  oom,             ///< OutOfMemoryError was thrown
};

/// One event of an allocator.
/// @since 0.1
struct TraceEntry {
  TraceAction action = TraceAction::alloc;  ///< kind of the event
  std::uintptr_t address = 0;               ///< for oom: free bytes of the driver
  std::size_t bytes = 0;        ///< size of the block or segment; for oom: of the request
  std::size_t requested = 0;    ///< of a block: bytes that the caller asked for; 0: unknown
  std::uint64_t stream = 0;     ///< id of the stream concerned
  std::int64_t time_us = 0;     ///< microseconds since 1970
  Frames frames{};              ///< call stack, if recorded
  std::string user_metadata{};  ///< set_history_metadata() of the thread

  bool operator==(const TraceEntry&) const = default;
};

/// A note of the program in the trace; see annotate_history().
/// @since 0.1
struct Annotation {
  int device = 0;                               ///< index of the device
  std::int64_t time_us = 0;                     ///< microseconds since 1970
  std::map<std::string, std::string> values{};  ///< keys and texts, as given

  bool operator==(const Annotation&) const = default;
};

/// The value of one setting of the allocator. Only roundup_power2_divisions is a map, from
/// megabytes to divisions.
using SettingValue =
    std::variant<bool, std::int64_t, double, std::string, std::map<std::string, std::int64_t>>;

/// The memory that the allocators hold, and their events while history was recorded.
/// @since 0.1
struct Snapshot {
  std::vector<SegmentInfo> segments;                   ///< by device and address
  std::vector<std::vector<TraceEntry>> device_traces;  ///< one list per device, oldest first
  std::map<std::string, SettingValue> settings;        ///< torch's names, and "backend"
  std::vector<Annotation> annotations;                 ///< oldest first

  bool operator==(const Snapshot&) const = default;
};

/// Takes a snapshot of the allocators of all devices.
///
/// It always has segments and blocks. It has frames and traces only if history is recorded.
/// Segments and trace of a device are consistent, also while other threads allocate and free. The
/// last event is the last one that the segments include. Devices are visited one after the other.
/// Backend async has neither segments nor events, because the driver manages its memory.
/// Device/stream: does not wait for devices.
/// Thread safety: any thread.
/// @code
/// const memory::Snapshot now = memory::snapshot();
/// for (const auto& segment : now.segments) std::cout << segment.total_bytes << "\n";
/// @endcode
/// @since 0.1
[[nodiscard]] GANTRY_API Snapshot snapshot();

/// Writes snapshot() to a file, in the format of its extension.
///
///   .pickle  the format of torch.cuda.memory._dump_snapshot, for torch's memory_viz
///   .json    the same data for other programs, and for load_snapshot()
///   .html    a page with a viewer, complete in one file
/// Throws: InvalidArgument for another extension; Error if the file cannot be written.
/// Example: `memory::save_snapshot("memory.html");`
/// @since 0.1
GANTRY_API void save_snapshot(const std::filesystem::path& path);
/// As above, for a snapshot that exists.
/// @since 0.1
GANTRY_API void save_snapshot(const Snapshot& snapshot, const std::filesystem::path& path);

/// Reads a .json file of save_snapshot().
/// Throws: InvalidArgument for another extension or content; Error if the file cannot be read.
/// @since 0.1
[[nodiscard]] GANTRY_API Snapshot load_snapshot(const std::filesystem::path& path);

}  // namespace gantry::memory
