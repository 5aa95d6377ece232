// Exports a block that its stream has yet to fill, and then a second one. Commands on standard
// input:
//   release  lets the stream continue; prints "released" when it has completed
//   export   exports the block again; prints the handle
//   check    prints the first byte of the block
//   quit
// With the argument "chunks" the memory does not come from the caching allocator.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/vmm_source.hpp"
#include "tests/support/stream_hold.hpp"

int main(int argc, char** argv) {
  constexpr std::size_t kBytes = 100000;
  constexpr std::uint8_t kValue = 77;
  gantry::set_device(gantry::Device::cuda(0));
  const gantry::StreamGuard guard(gantry::Stream::from_pool());
  const gantry::Stream& stream = guard.current_stream();
  const bool chunks = argc > 1 && std::string(argv[1]) == "chunks";
  gantry::testing::VmmSource* source = chunks ? new gantry::testing::VmmSource(0, 2) : nullptr;
  const auto allocate = [&](std::size_t bytes) {
    return source != nullptr ? gantry::memory::Buffer(source->allocate(stream, bytes))
                             : gantry::memory::allocate(stream, bytes);
  };
  // Not the first block of its extent.
  const gantry::memory::Buffer before = allocate(5000);
  const gantry::memory::Buffer buffer = allocate(kBytes);
  gantry::driver().fill(buffer.data(), 0, kBytes, stream.native());
  gantry::testing::StreamHold hold(stream);
  gantry::driver().fill(buffer.data(), kValue, kBytes, stream.native());
  std::cout << gantry::testing::to_text(gantry::memory::export_ipc(buffer.block())) << std::endl;
  std::cout << gantry::testing::to_text(gantry::memory::export_ipc(before.block())) << std::endl;

  for (std::string word; std::cin >> word && word != "quit";) {
    if (word == "release") {
      hold.release();
      stream.synchronize();
      std::cout << "released" << std::endl;
    } else if (word == "export") {
      std::cout << gantry::testing::to_text(gantry::memory::export_ipc(buffer.block()))
                << std::endl;
    } else if (word == "check") {
      std::uint8_t first = 0;
      gantry::driver().copy(&first, buffer.data(), 1, stream.native());
      stream.synchronize();
      std::cout << static_cast<int>(first) << std::endl;
    }
  }
}
