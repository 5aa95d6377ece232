// Exports a tensor that its stream has yet to fill, of the dtype that the first argument names, or
// i32. Reads commands from standard input: release
// (resumes the stream), read (prints the elements), quit.
#include <iostream>
#include <string>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/ipc/ipc_text.hpp"
#include "tests/support/stream_hold.hpp"

int main(int argc, char** argv) {
  const gantry::DType dtype = argc > 1 ? gantry::parse_dtype(argv[1]) : gantry::i32;
  const int index = gantry::device_count() - 1;
  gantry::set_device(gantry::Device::cuda(0));
  const gantry::StreamGuard guard(gantry::Stream::from_pool(gantry::Device::cuda(index)));
  const gantry::Stream& stream = guard.current_stream();
  const gantry::Tensor base =
      gantry::zeros({4, 6}, {.dtype = dtype, .device = gantry::Device::cuda(index)});
  gantry::Tensor view = base.slice(1, 1, 6, 2).t();  // [3, 4], strided, with an offset
  const gantry::Tensor values = gantry::arange(12, {.dtype = gantry::i32}).to(dtype).view({3, 4});
  const gantry::Tensor ready = values.cuda(index);
  gantry::testing::StreamHold hold(stream);
  view.copy_(ready);
  std::cout << gantry::testing::to_text(view.ipc_handle()) << std::endl;

  for (std::string word; std::cin >> word && word != "quit";) {
    if (word == "release") {
      hold.release();
      stream.synchronize();
      std::cout << "released" << std::endl;
    } else if (word == "read") {
      for (const int value : view.to_vector<int>()) std::cout << value << ' ';
      std::cout << std::endl;
    }
  }
}
