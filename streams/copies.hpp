// Copies that engines make back to back.
#pragma once

#include <span>

#include <gantry/streams/stream.hpp>

namespace gantry {

/// Driver::copy_runs on `stream`. The default stream, which takes no batches, waits meanwhile for
/// another one: some 5 us more of the device, which pay where runs take longer than that. That
/// stream is made with the first one of the pool, which may wait for the device (StreamPool::next).
/// Throws: CudaError; what was submitted by then is over before later work of `stream`.
void copy_runs(const Stream& stream, std::span<const CopyRun> runs);

}  // namespace gantry
