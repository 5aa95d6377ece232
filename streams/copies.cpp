#include "streams/copies.hpp"

#include "streams/stream_pool.hpp"

namespace gantry {

void copy_runs(const Stream& stream, std::span<const CopyRun> runs) {
  if (stream.native_handle() != nullptr || runs.size() < 2) {
    driver().copy_runs(runs, stream.native());
    return;
  }
  const StreamPool::Entry entry = StreamPool::of(stream.native().device).beside_default();
  const Stream beside = Stream::external(entry.native.handle, stream.device());
  beside.wait(stream);
  try {
    driver().copy_runs(runs, beside.native());
  } catch (...) {
    stream.wait(beside);
    throw;
  }
  stream.wait(beside);
}

}  // namespace gantry
