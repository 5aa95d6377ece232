#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/comm/fresh_outputs.hpp"
#include "kernels/fan.hpp"

namespace gantry {

// Runs of bytes from one device to receivers of one layout: every run goes to its `to` and to
// `to + shift` for every shift.
struct FanGroup {
  std::vector<CopyRegion> runs;
  std::vector<std::ptrdiff_t> shifts;

  [[nodiscard]] std::size_t bytes() const;
};

// Copies runs on `stream`, whose device reaches both ends of each: `by_engines_from` bytes and more
// by copy engines, less by a kernel.
void move_runs(const Stream& stream, std::span<const CopyRegion> runs, std::size_t by_engines_from);

// True if every device of `from` reaches every tensor's.
bool all_reach(std::span<const Device> from, std::span<const Tensor> tensors);

// Copies all groups from memory of `source`, whose kernels reach all receivers, into memory of the
// streams `homes`. Ordered both ways with the source's current stream and the homes: everybody may
// read and write what is theirs at once. `fresh` made the receivers, if they are new ones.
// `sharers` are devices that reach the source and all receivers and may take part in the work, on
// their current streams.
void fan_out(Device source, std::span<const FanGroup> groups, std::span<const Stream> homes,
             std::span<const Device> sharers, FreshOutputs* fresh);

// Tells the allocator that work on `streams` may still use the tensors: for a call that failed
// between submitting work and ordering it with their own streams.
void keep_after_failure(std::span<const Tensor> tensors, std::span<const Stream> streams) noexcept;

// Copies `source` (contiguous, on a device) into every tensor of `out`, of its shape, dtype
// converted. Ordered as fan_out.
void broadcast_into(const Tensor& source, std::span<const Tensor> out, FreshOutputs* fresh);

}  // namespace gantry
