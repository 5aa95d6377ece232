// Uses device memory rightly or wrongly, as its argument says, for AddressSanitizer to judge.
#include <cstring>
#include <iostream>
#include <string>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "tests/support/stream_hold.hpp"

namespace {

using namespace gantry;

constexpr std::size_t kBytes = 10000;

void fill(void* data, std::size_t bytes, const Stream& stream) {
  driver().fill(data, 1, bytes, stream.native());
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  set_device(Device::cuda(0));
  const Stream stream = Stream::from_pool();
  memory::Buffer buffer = memory::allocate(stream, kBytes);
  void* data = buffer.data();
  if (what == "queued-before-free") {
    testing::StreamHold hold(stream);
    fill(data, kBytes, stream);
    buffer.reset();
    hold.release();
  } else if (what == "queued-after-free") {
    buffer.reset();
    fill(data, kBytes, stream);
  } else if (what == "reused") {
    testing::StreamHold hold(stream);
    fill(data, kBytes, stream);
    buffer.reset();
    const memory::Buffer again = memory::allocate(stream, kBytes);
    if (again.data() != data) return 3;
    fill(data, kBytes, stream);
    hold.release();
    stream.synchronize();
  } else if (what == "past-the-end") {
    fill(data, kBytes + 200, stream);
  } else if (what == "recorded-stream") {
    const Stream user = Stream::from_pool();
    user.wait(stream);
    testing::StreamHold hold(user);
    fill(data, kBytes, user);
    buffer.block().allocator->record_stream(buffer.block(), user);
    buffer.reset();
    const memory::Buffer other = memory::allocate(stream, kBytes);
    hold.release();
    user.synchronize();
  } else if (what == "after-empty-cache") {
    buffer.reset();
    memory::empty_cache();
    for (int i = 0; i < 50; ++i) {
      void* segment = driver().allocate(0, 2 << 20);
      fill(segment, 2 << 20, stream);
      stream.synchronize();
      driver().deallocate(0, segment);
    }
  } else if (what == "pinned-after-free") {
    memory::Buffer host = memory::pinned(kBytes);
    void* place = host.data();
    host.reset();
    std::memset(place, 1, kBytes);
  } else {
    return 2;
  }
  stream.synchronize();
  buffer.reset();
  std::cout << "done" << std::endl;
}
