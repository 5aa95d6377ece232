#include <gantry/streams/stream_guard.hpp>

namespace gantry {

StreamGuard::StreamGuard(const Stream& stream)
    : device_guard_(stream.device()),
      original_(Stream::current(stream.device())),
      current_(stream) {
  set_stream(stream);
}

StreamGuard::~StreamGuard() { set_stream(original_); }

MultiStreamGuard::MultiStreamGuard(std::span<const Stream> streams) {
  originals_.reserve(streams.size());
  for (const Stream& stream : streams) originals_.push_back(Stream::current(stream.device()));
  for (const Stream& stream : streams) set_stream(stream);
}

MultiStreamGuard::~MultiStreamGuard() {
  for (const Stream& stream : originals_) set_stream(stream);
}

}  // namespace gantry
