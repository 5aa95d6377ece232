// Batches of copies.
#pragma once

#include <span>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// Copies all `regions` in order of `stream`, as Driver::copy_batch.
///
/// The default stream takes no batches: it waits for a companion stream, which costs about 5 us of
/// the device. The companion is made with the first stream of the pool, which may wait for the
/// device (StreamPool::next).
/// Throws: CudaError; copies submitted by then complete before later work of `stream`.
void copy_batch(const Stream& stream, std::span<const CopyRegion> regions);

}  // namespace gantry
