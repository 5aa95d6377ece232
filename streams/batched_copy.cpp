#include "streams/batched_copy.hpp"

#include "device/platform/sync_debug_driver.hpp"
#include "streams/stream_pool.hpp"

namespace gantry {

namespace {

// Makes later work of `stream` wait for `companion`, or the host if that fails.
void join(const Stream& stream, const Stream& companion) {
  try {
    stream.wait(companion);
  } catch (...) {
    const BlockingIsNeeded needed;
    companion.synchronize();
    throw;
  }
}

}  // namespace

void copy_batch(const Stream& stream, std::span<const CopyRegion> regions) {
  if (stream.native_handle() != nullptr || regions.size() < 2) {
    driver().copy_batch(regions, stream.native());
    return;
  }
  const StreamPool::Entry entry = StreamPool::of(stream.native().device).companion_of_default();
  const Stream companion = Stream::external(entry.native.handle, stream.device());
  companion.wait(stream);
  try {
    driver().copy_batch(regions, companion.native());
  } catch (...) {
    join(stream, companion);
    throw;
  }
  join(stream, companion);
}

}  // namespace gantry
