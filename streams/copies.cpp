#include "streams/copies.hpp"

#include "streams/stream_pool.hpp"

namespace gantry {

namespace {

// Later work of `stream` is to run after that of `beside`, which nobody else waits for.
void join(const Stream& stream, const Stream& beside) {
  try {
    stream.wait(beside);
  } catch (...) {
    beside.synchronize();
    throw;
  }
}

}  // namespace

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
    join(stream, beside);
    throw;
  }
  join(stream, beside);
}

}  // namespace gantry
