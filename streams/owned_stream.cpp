#include <gantry/streams/owned_stream.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "device/checked_device_index.hpp"

namespace gantry {

StreamPriorityRange stream_priority_range(Device device) {
  const Driver::PriorityRange range =
      driver().priority_range(checked_device_index(device, "stream_priority_range"));
  return {.least = range.least, .greatest = range.greatest};
}

OwnedStream::OwnedStream(Device device, int priority) {
  const int index = checked_device_index(device, "OwnedStream");
  const Driver::PriorityRange range = driver().priority_range(index);
  if (priority > range.least || priority < range.greatest) {
    throw InvalidArgument(fmt::format("OwnedStream: expected a priority in [{}, {}], but got {}",
                                      range.greatest, range.least, priority),
                          Device::cuda(index).str());
  }
  const NativeStream native = driver().create_stream(index, priority);
  try {
    made_ = gantry::detail::CheckedPtr(std::unique_ptr<Made, Destroy>(
        new Made{Stream::external(native.handle, Device::cuda(index)), priority}));
  } catch (...) {
    driver().destroy_stream(native);
    throw;
  }
}

const Stream& OwnedStream::stream() const { return made_.of("OwnedStream::stream").stream; }

int OwnedStream::priority() const { return made_.of("OwnedStream::priority").priority; }

void OwnedStream::Destroy::operator()(Made* made) const noexcept {
  if (!in_bad_fork()) driver().destroy_stream(made->stream.native());
  delete made;
}

}  // namespace gantry
