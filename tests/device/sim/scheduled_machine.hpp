// A simulated machine under a schedule, for tests of orders.
#pragma once

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/sim/sim_driver.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace gantry::testing {

/// Sets GANTRY_SIM_SCHEDULE before the machine is made.
class Scheduled {
 public:
  explicit Scheduled(const std::string& value) {
    if (const char* before = std::getenv("GANTRY_SIM_SCHEDULE")) before_ = before;
    setenv("GANTRY_SIM_SCHEDULE", value.c_str(), 1);
  }
  ~Scheduled() { setenv("GANTRY_SIM_SCHEDULE", before_.c_str(), 1); }
  Scheduled(const Scheduled&) = delete;
  Scheduled& operator=(const Scheduled&) = delete;

 private:
  std::string before_;
};

/// A machine with a schedule, and the numbers of the tasks that ran, in order.
class ScheduledMachine : private Scheduled {
 public:
  explicit ScheduledMachine(const std::string& schedule)
      : Scheduled(schedule),
        owner(make_sim_driver(2)),
        driver(dynamic_cast<sim::SimDriver&>(*owner)) {
    driver.schedule()->record_order();
    for (int i = 0; i < 4; ++i) streams.push_back(driver.create_stream(i % 2, 0));
  }
  ~ScheduledMachine() {
    for (const NativeStream stream : streams) driver.destroy_stream(stream);
  }
  void launch(int stream, int number) {
    sim::launch(streams[static_cast<std::size_t>(stream)], [this, number] {
      const std::lock_guard lock(mutex);
      ran.push_back(number);
    });
  }
  std::vector<int> numbers() {
    const std::lock_guard lock(mutex);
    return ran;
  }
  void synchronize(int stream) {
    driver.synchronize_stream(streams[static_cast<std::size_t>(stream)]);
  }
  void synchronize_all() {
    driver.synchronize_device(0);
    driver.synchronize_device(1);
  }
  /// Makes stream `to` wait for what `from` has.
  void wait(int to, int from) {
    const NativeEvent event = driver.create_event(from % 2, {});
    driver.record_event(event, streams[static_cast<std::size_t>(from)]);
    driver.wait_event(streams[static_cast<std::size_t>(to)], event);
    driver.destroy_event(event);
  }

  std::mutex mutex;  ///< of `ran`
  std::vector<int> ran;
  std::unique_ptr<Driver> owner;
  sim::SimDriver& driver;
  std::vector<NativeStream> streams;
};

}  // namespace gantry::testing
