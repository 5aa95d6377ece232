// gantry's allocator as functions of a shared library.
#include <gantry/memory/pluggable_allocator.hpp>

#include <fmt/format.h>

#include <cstddef>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream.hpp>

namespace {

gantry::Stream stream_of(int device, void* stream) {
  const gantry::Device place = gantry::Device::cuda(device);
  return stream == nullptr ? gantry::Stream::default_stream(place)
                           : gantry::Stream::external(stream, place);
}

}  // namespace

void* gantry_malloc(std::ptrdiff_t size, int device, void* stream) {
  if (size < 0) {
    throw gantry::InvalidArgument(
        fmt::format("gantry_malloc: expected a size of 0 or more, but got {}", size));
  }
  return gantry::memory::allocate_raw(static_cast<std::size_t>(size), stream_of(device, stream));
}

// PyTorch frees on the stream of the allocation, so size, device and stream say nothing new.
void gantry_free(void* data, std::ptrdiff_t /*size*/, int /*device*/, void* /*stream*/) {
  gantry::memory::deallocate_raw(data);
}
