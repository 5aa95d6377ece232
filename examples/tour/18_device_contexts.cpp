// Device contexts: the current device and stream of a thread, for a scope.
//
// A guard sets them in its constructor and restores them in its destructor, also when an exception
// leaves the scope. Every thread has its own.
#include <gantry/gantry.hpp>

#include <iostream>
#include <stdexcept>
#include <thread>

namespace {

// On the current device.
gantry::Tensor make() { return gantry::ones({2}, gantry::Device::cuda()); }

}  // namespace

int main() {
  using namespace gantry;
  if (device_count() < 2) {
    std::cout << "this example needs two devices\n";
    return 77;
  }

  // 1. A guard for a scope, and one inside.
  {
    const DeviceGuard guard(Device::cuda(1));
    std::cout << "in the scope: " << make().device() << "\n";
    {
      const DeviceGuard inner(Device::cuda(0));
      std::cout << "in the inner one: " << make().device() << "\n";
    }
    std::cout << "behind it: " << make().device() << "\n";
  }
  std::cout << "outside: " << make().device() << "\n";

  // 2. An exception restores it, too.
  try {
    const DeviceGuard guard(Device::cuda(1));
    throw std::runtime_error("lost");
  } catch (const std::runtime_error&) {
    std::cout << "after an exception: " << current_device() << "\n";
  }

  // 3. A guard that may do nothing, and one for the device of a tensor.
  const Tensor there = ones({2}, Device::cuda(1));
  {
    OptionalDeviceGuard guard;
    std::cout << "no device yet: " << current_device() << "\n";
    guard.set_device(there.device());
    std::cout << "that of the tensor: " << current_device() << "\n";
  }

  // 4. A stream's guard changes its device, too, and the current stream there.
  {
    const StreamGuard guard(Stream::from_pool(Device::cuda(1)));
    std::cout << "with a stream: " << make().device() << ", default stream: "
              << (Stream::current() == Stream::default_stream(Device::cuda(1))) << "\n";
  }

  // 5. Another thread begins on device 0, whatever this one does.
  const DeviceGuard guard(Device::cuda(1));
  std::thread([] { std::cout << "a new thread: " << current_device() << "\n"; }).join();
}
// Output:
// in the scope: cuda:1
// in the inner one: cuda:0
// behind it: cuda:1
// outside: cuda:0
// after an exception: cuda:0
// no device yet: cuda:0
// that of the tensor: cuda:1
// with a stream: cuda:1, default stream: 0
// a new thread: cuda:0
