#include <gantry/streams/green_context.hpp>

#include <fmt/format.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/owned_stream.hpp>

#include "device/checked_device_index.hpp"
#include "device/drivers/green_partition.hpp"

namespace gantry {

struct GreenContext::Impl {
  Impl(int of_device, int multiprocessors)
      : device(of_device), partition(make_green_partition(of_device, multiprocessors)) {}
  ~Impl() {
    if (in_bad_fork()) return;
    for (const Stream& stream : streams) driver().destroy_stream(stream.native());
    destroy_green_partition(partition);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const int device;
  const GreenPartition partition;
  std::vector<Stream> streams;
};

GreenContext::GreenContext(int multiprocessors, Device device) {
  const int index = checked_device_index(device, "GreenContext");
  const Device on = Device::cuda(index);
  const int most = device_properties(on).multiprocessors;
  if (multiprocessors < 1 || multiprocessors > most) {
    throw InvalidArgument(
        fmt::format("GreenContext: expected a number of multiprocessors in [1, {}], but got {}",
                    most, multiprocessors),
        on.str());
  }
  if (platform() != Platform::cuda) {
    throw NotSupported(
        "GreenContext: expected a GPU, but got a simulated device, which has no multiprocessors to "
        "share",
        on.str());
  }
  impl_ = std::make_unique<Impl>(index, multiprocessors);
}

GreenContext::~GreenContext() = default;

int GreenContext::multiprocessors() const { return impl_->partition.multiprocessors; }

Device GreenContext::device() const { return Device::cuda(impl_->device); }

Stream GreenContext::make_stream(int priority) {
  Impl& impl = *impl_;
  const StreamPriorityRange range = stream_priority_range(Device::cuda(impl.device));
  if (priority > range.least || priority < range.greatest) {
    throw InvalidArgument(
        fmt::format("GreenContext::make_stream: expected a priority in [{}, {}], but got {}",
                    range.greatest, range.least, priority),
        Device::cuda(impl.device).str());
  }
  impl.streams.reserve(impl.streams.size() + 1);
  const NativeStream native = make_green_stream(impl.device, impl.partition, priority);
  try {
    impl.streams.push_back(Stream::external(native.handle, Device::cuda(impl.device)));
  } catch (...) {
    driver().destroy_stream(native);
    throw;
  }
  return impl.streams.back();
}

}  // namespace gantry
