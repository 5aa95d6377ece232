// Holds a stream, exports an event behind it, and lets the stream go when told to.
#include <unistd.h>

#include <iostream>
#include <string>

#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "tests/support/stream_hold.hpp"

int main() {
  gantry::set_device(gantry::Device::cuda(0));
  const gantry::Stream stream = gantry::Stream::from_pool();
  gantry::Event event({.interprocess = true});
  gantry::testing::StreamHold hold(stream);
  event.record(stream);

  std::cout << "handle ";
  for (const std::byte byte : event.ipc_handle().bytes) {
    std::cout << static_cast<int>(byte) << ' ';
  }
  std::cout << "end" << std::endl;

  for (std::string word; std::cin >> word && word != "quit";) {
    if (word == "release") {
      hold.release();
      stream.synchronize();
      std::cout << "released" << std::endl;
    }
  }
}
