#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <gantry/streams/stream.hpp>

#include "collectives/multi_gpu/call.hpp"
#include "kernels/peers/multicast.hpp"

namespace gantry {

// Copies to receivers with one layout. Each run is copied to its `to`, and to `to + shift` for
// every shift.
struct MulticastBatch {
  explicit MulticastBatch(std::pmr::memory_resource* memory) : runs(memory), shifts(memory) {}
  [[nodiscard]] std::size_t bytes() const;

  std::pmr::vector<CopyRegion> runs;
  std::pmr::vector<std::ptrdiff_t> shifts;
};

// Copies runs on `stream`, whose device reaches both ends of each. Copy engines copy
// `by_engines_from` bytes or more, a kernel copies less.
void copy_by_size(const Stream& stream, std::span<const CopyRegion> runs,
                  std::size_t by_engines_from);

// Copies all batches from memory of the root to memory of the call's other devices, as
// MultiDeviceCall::run(). Requires: is_direct().
void multicast(MultiDeviceCall& call, std::span<const MulticastBatch> batches,
               MultiDeviceCall::Operands operands, CachedOutputs* cached);

}  // namespace gantry
