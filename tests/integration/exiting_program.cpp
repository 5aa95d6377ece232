// A program that exits while background threads of gantry work.
//   exiting_program STEPS main|thread HANDLE…
// takes STEPS steps, prints a handle for each of its exports, and exits by the main thread or by
// another one. The streams that it waits for stay held. On simulated devices the driver ends at
// exit as CUDA does: later calls of background threads abort the process.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/forwarding_driver.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/control/operation_deadlines.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/stream_hold.hpp"

namespace {

using gantry::Device;
using gantry::Stream;

std::atomic<bool> has_driver_ended{false};
std::atomic<pid_t> exiting_thread{0};

class EndingDriver final : public gantry::ForwardingDriver {
 public:
  EndingDriver() : ForwardingDriver(*gantry::exchange_driver(this)) {}

 protected:
  void before_call(const char* call) override { check(call); }
  void before_noexcept_call(const char* call) noexcept override { check(call); }

 private:
  static void check(const char* call) noexcept {
    if (!has_driver_ended || gettid() == exiting_thread) return;
    std::cerr << "a background thread calls " << call << " after the end of the driver\n";
    std::abort();
  }
};

bool has_polling_thread() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  while (const dirent* entry = readdir(tasks.get())) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(file, name) && (name == "gantry-ipc-wait" || name == "gantry-op-query"))
      return true;
  }
  return false;
}

// Registered before the driver is made: it runs behind gantry's own handler.
void end_driver() {
  exiting_thread = gettid();
  has_driver_ended = true;
  if (gantry::testing::eventually([] { return !has_polling_thread(); })) return;
  std::cerr << "a background thread goes on after the end of the driver\n";
  std::abort();
}

// Every object is leaked, in reach of LeakSanitizer: exit() finds all of them in use.
template <class T>
T* leak(T* object) {
  static auto& leaked = *new std::vector<const void*>;
  leaked.push_back(object);
  return object;
}

void take(int step, const std::vector<gantry::IpcHandle>& handles) {
  const Device device = Device::cuda(0);
  const Stream stream = Stream::from_pool(device);
  const auto at = static_cast<std::size_t>(step);
  switch (step % 3) {
    case 0:
      if (!handles.empty()) {
        const gantry::StreamGuard guard(stream);
        leak(new auto(gantry::memory::import_ipc(handles[at % handles.size()])));
      }
      return;
    case 1: {
      auto* block = leak(new auto(gantry::memory::allocate(stream, 100000)));
      std::cout << gantry::testing::to_text(gantry::memory::export_ipc(block->block()))
                << std::endl;
      return;
    }
    case 2: {
      auto* deadlines = leak(new gantry::OperationDeadlines(
          device.index, std::chrono::minutes(10),
          {.find_error = {}, .on_failure = [](auto, auto) {}, .cause = "held"}));
      deadlines->begin(stream, 1, "held");
      leak(new gantry::testing::StreamHold(stream));
      deadlines->end(stream);
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (std::getenv("GANTRY_SIM_DEVICES") != nullptr) {
    (void)std::atexit(end_driver);
    leak(new EndingDriver);
  }
  std::vector<gantry::IpcHandle> handles;
  for (int i = 3; i < argc; ++i) handles.push_back(gantry::testing::from_text(argv[i]));
  const int steps = std::atoi(argv[1]);
  // Before streams are held: making a group may wait for the device.
  if (steps > 2 && gantry::device_count() > 1)
    leak(new auto(gantry::Communicator::local({Device::cuda(0), Device::cuda(1)})));
  for (int step = 0; step < steps; ++step) take(step, handles);
  if (std::string(argv[2]) == "thread") std::thread([] { std::exit(0); }).join();
  std::exit(0);
}
