#include "device/drivers/stream_names.hpp"

#include <fmt/format.h>

#include <atomic>

#include <gantry/device/device.hpp>

namespace gantry {
namespace {

constinit std::atomic<StreamNumbering> numbering_of_streams{nullptr};

}  // namespace

void set_stream_numbering(StreamNumbering numbering) noexcept {
  numbering_of_streams.store(numbering, std::memory_order_release);
}

std::optional<std::uint64_t> number_of(NativeStream stream) noexcept {
  const StreamNumbering numbering = numbering_of_streams.load(std::memory_order_acquire);
  return numbering == nullptr ? std::nullopt : numbering(stream);
}

bool has_stream_numbering() noexcept {
  return numbering_of_streams.load(std::memory_order_acquire) != nullptr;
}

std::string name_of_stream(NativeStream stream) {
  const std::string device = Device::cuda(stream.device).str();
  if (stream.handle == nullptr) return fmt::format("the default stream of {}", device);
  if (const auto number = number_of(stream)) {
    return fmt::format("stream {} of {}", *number, device);
  }
  return fmt::format("stream {} of {}", fmt::ptr(stream.handle), device);
}

}  // namespace gantry
