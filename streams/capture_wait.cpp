#include "streams/capture_wait.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

// CUDA's numbers of errors.
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureMerge = 902;
constexpr int kCaptureIsolation = 905;
constexpr int kCaptureImplicit = 906;

std::string name_of(int device, std::optional<std::uint64_t> stream) {
  const std::string name = Device::cuda(device).str();
  if (!stream) return fmt::format("a stream of {}", name);
  return *stream == 0 ? fmt::format("the default stream of {}", name)
                      : fmt::format("stream {} of {}", *stream, name);
}

std::string joined_device(int device) {
  return fmt::format("name {0} in GraphCapture(graph, {{.devices = {{\"{0}\"}}}})",
                     Device::cuda(device).str());
}

// Why a capture refused that `waiter` waits, and the remedy; empty for other errors.
std::string explanation(int code, const Stream& waiter, const RecordPlace& recorded) {
  const int device = waiter.native().device;
  const std::string other = name_of(recorded.device, recorded.stream);
  if (code == kCaptureIsolation) {
    return fmt::format(
        "{} is being captured, but {} takes no part in the capture; {}", name_of(waiter), other,
        recorded.device != device ? joined_device(recorded.device)
                                  : "make it wait for the stream of the capture first");
  }
  if (code == kCaptureMerge) {
    return fmt::format(
        "{} and {} take part in different captures; replay one graph in the other "
        "capture instead",
        name_of(waiter), other);
  }
  const bool is_default = waiter.native_handle() == nullptr;
  if (is_default && (code == kCaptureUnsupported || code == kCaptureImplicit)) {
    return fmt::format(
        "{} can take no part in the capture of {}; {}", name_of(waiter), other,
        recorded.device != device ? joined_device(device) : "make a stream of the pool current");
  }
  return {};
}

}  // namespace

std::string name_of(const Stream& stream) { return name_of(stream.native().device, stream.id()); }

void wait_event(const Stream& waiter, NativeEvent event, const RecordPlace& recorded) {
  try {
    driver().wait_event(waiter.native(), event);
  } catch (const CudaError& error) {
    const std::string why = explanation(error.code(), waiter, recorded);
    if (why.empty()) throw;
    throw CudaError(fmt::format("{}; {}", error.what(), why), error.code(), error.name(),
                    error.device());
  }
}

}  // namespace gantry
