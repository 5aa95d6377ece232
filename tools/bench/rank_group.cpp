#include "tools/bench/rank_group.hpp"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/job/process_identity.hpp>

namespace gantry::bench {

RankGroup::RankGroup(int devices) {
  const ProcessIdentity identity = detect_process_identity();
  if (identity.world_size > 1) {
    if (devices > 1) {
      throw InvalidArgument(
          fmt::format("--gpus: expected one device per process beside {}, but got {}",
                      identity.source, devices));
    }
    const Communicator world = Communicator::world();
    ranks_ = world.size();
    reports_ = world.rank() == 0;
    launched_by_ = world.launched_by();
    device_name_ = device_properties(world.device()).name;
    return;
  }
  const int visible = device_count();
  if (visible == 0) {
    throw NotSupported("there is no device; GANTRY_SIM_DEVICES=4 simulates some");
  }
  if (devices > visible) {
    throw InvalidArgument(fmt::format("--gpus: expected at most the {} visible devices, but got {}",
                                      visible, devices));
  }
  ranks_ = devices == 0 ? visible : devices;
  for (int i = 0; i < ranks_; ++i) devices_.push_back(Device::cuda(i));
  launched_by_ = "threads";
  device_name_ = device_properties(devices_.front()).name;
}

void RankGroup::run(const std::function<void(Communicator)>& program) {
  if (!devices_.empty()) {
    run_threads(program);
    return;
  }
  Communicator world = Communicator::world();
  program(world.split(0, world.rank()));
}

void RankGroup::run_threads(const std::function<void(Communicator)>& program) {
  std::vector<std::optional<Communicator>> group;
  for (Communicator& rank : Communicator::local(devices_)) group.emplace_back(std::move(rank));
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        program(*group[rank]);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
        }
        // The others may wait on the device, or on the host for what this rank has to say.
        group[rank]->abort();
        group[rank].reset();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace gantry::bench
