#include "kernels/reductions/merge_counters.hpp"

#include <cstddef>

#include <gantry/extend/driver.hpp>

#include "kernels/scratch.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

MergeCounters merge_counters(const Target& target, std::int64_t count, Scratch& memory) {
  MergeCounters counters;
  const Stream& stream = target.stream();
  if (count <= cuda::kStreamCounters && stream.id() < cuda::kCountedStreams &&
      !driver().is_capturing(stream.native())) {
    counters.stream_id = static_cast<std::uint32_t>(stream.id());
    return counters;
  }
  memory = Scratch(target, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
  counters.memory = static_cast<std::uint32_t*>(memory.data());
  cuda::clear_counters(stream.native().handle, counters.memory, count);
  return counters;
}

}  // namespace gantry::kernels
