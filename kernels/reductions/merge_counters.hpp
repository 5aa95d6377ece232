#pragma once

#include <cstdint>

namespace gantry::kernels {

class Scratch;
class Target;

// The counters of a GPU launch whose last block merges the results of the others. Each is 0 between
// launches.
struct MergeCounters {
  std::uint32_t* memory = nullptr;  // null: the module's own counters of stream `stream_id`
  std::uint32_t stream_id = 0;
};

// `count` counters for a launch on `target`, a stream. Kernels of one stream follow each other, so
// the launches of a stream share the module's counters. A graph may run beside its capturing
// stream, and an external stream may be destroyed with unfinished work: their launches get counters
// in `memory`, which outlives the launch call.
[[nodiscard]] MergeCounters merge_counters(const Target& target, std::int64_t count,
                                           Scratch& memory);

namespace cuda {
// The module's counters of one default or pooled stream.
inline constexpr std::int64_t kStreamCounters = 256;
// Ids of streams that have counters are below. Their streams live as long as the process.
inline constexpr std::uint64_t kCountedStreams = 66;

// Sets `count` counters to 0 in stream order.
void clear_counters(void* stream, std::uint32_t* counters, std::int64_t count);
}  // namespace cuda

}  // namespace gantry::kernels
