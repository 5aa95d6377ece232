// The other process of sim_ipc_test. It shares memory and an event, then does as it is told:
//
//   prints the memory handle and the event handle, each on a line;
//   "record"  writes 'p' to the memory behind a closed gate, records the event; prints "recorded"
//   "open"    opens the gate; prints "opened"
//   "free"    frees the memory; prints "freed"
//   "show"    prints the first four bytes of the memory
//   "events N"  makes N more events; prints their handles, and how many descriptors it has then
//   "destroy"   destroys these events; prints "destroyed"
//   end of input: leaves
#include <cstdio>
#include <future>
#include <iostream>
#include <string>
#include <vector>

#include "device/sim/sim_driver.hpp"
#include "device/sim/streams/sim_launch.hpp"
#include "tests/device/handle_text.hpp"
#include "tests/support/descriptor_limit.hpp"

int main() {
  using namespace gantry;
  using testing::count_descriptors;
  constexpr std::size_t kBytes = 4096;
  const auto driver = make_sim_driver(2);
  const NativeStream stream = driver->create_stream(1, 0);
  void* data = driver->allocate(1, kBytes);
  driver->fill(data, 'o', kBytes, stream);
  driver->synchronize_stream(stream);
  const NativeEvent event =
      driver->create_event(1, {.timing = false, .blocking = false, .interprocess = true});
  std::cout << testing::to_text(driver->export_memory(data)) << "\n"
            << testing::to_text(driver->export_event(event)) << std::endl;

  std::vector<NativeEvent> more;
  std::promise<void> gate;
  std::string command;
  while (std::getline(std::cin, command)) {
    if (command == "record") {
      sim::launch(stream, [opened = gate.get_future().share()] { opened.wait(); });
      driver->fill(data, 'p', kBytes, stream);
      driver->record_event(event, stream);
      std::cout << "recorded" << std::endl;
    } else if (command == "open") {
      gate.set_value();
      std::cout << "opened" << std::endl;
    } else if (command == "free") {
      driver->deallocate(1, data);
      std::cout << "freed" << std::endl;
    } else if (command.starts_with("events ")) {
      for (int i = std::stoi(command.substr(7)); i > 0; --i) {
        more.push_back(
            driver->create_event(1, {.timing = false, .blocking = false, .interprocess = true}));
        std::cout << testing::to_text(driver->export_event(more.back())) << ' ';
      }
      std::cout << count_descriptors() << std::endl;
    } else if (command == "destroy") {
      for (const NativeEvent one : more) driver->destroy_event(one);
      more.clear();
      std::cout << "destroyed" << std::endl;
    } else if (command == "show") {
      char host[5] = {};
      driver->copy(host, data, 4, stream);
      std::cout << host << std::endl;
    }
  }
  return 0;
}
