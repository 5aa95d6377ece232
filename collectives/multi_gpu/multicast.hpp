#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/multi_gpu/output_cache.hpp"
#include "kernels/peers/multicast.hpp"

namespace gantry {

// Copies from one device to receivers with one layout. Each run is copied to its `to`, and to
// `to + shift` for every shift.
struct MulticastGroup {
  std::vector<CopyRegion> runs;
  std::vector<std::ptrdiff_t> shifts;

  [[nodiscard]] std::size_t bytes() const;
};

// Copies runs on `stream`, whose device reaches both ends of each. Copy engines copy
// `by_engines_from` bytes or more, a kernel copies less.
void copy_by_size(const Stream& stream, std::span<const CopyRegion> runs,
                  std::size_t by_engines_from);

// True if every device of `from` reaches the device of every tensor.
bool all_reach(std::span<const Device> from, std::span<const Tensor> tensors);

// Copies all groups from memory of `source`, whose kernels reach all receivers, into memory of the
// owner streams `owners`. Ordered before and after with the source's current stream and the owner
// streams, so each stream may use its memory at once. `cached` made the receivers, if they are new.
// `helpers` reach the source and all receivers; they may help, on their current streams.
void multicast(Device source, std::span<const MulticastGroup> groups,
               std::span<const Stream> owners, std::span<const Device> helpers,
               CachedOutputs* cached);

// Records the tensors' use on `streams` with the allocator, after a call failed between submitting
// work and ordering it with the owner streams.
void keep_after_failure(std::span<const Tensor> tensors, std::span<const Stream> streams) noexcept;

// Copies `source` (contiguous, on a device) into every tensor of `out`, which has its shape.
// Converts dtypes. Ordered as multicast().
void broadcast_into(const Tensor& source, std::span<const Tensor> out, CachedOutputs* cached);

}  // namespace gantry
