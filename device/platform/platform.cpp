#include "device/platform/platform.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/machine/visible_devices.hpp>

#include "core/env/env_check.hpp"
#include "core/env/settings.hpp"
#include "device/drivers/cuda_platform.hpp"
#include "device/drivers/launch_blocking.hpp"
#include "device/drivers/sim_platform.hpp"
#include "device/platform/sanitizers.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "machine/sim_identity.hpp"

namespace gantry {

namespace {

/// The facts about the machine, found out once per process.
struct Selection {
  Platform platform = Platform::none;
  int count = 0;
  std::vector<int> visible;  ///< simulated platform: which of the simulated devices are visible
  std::string problem;       ///< why there is no device
};

/// Note [Fork detection]
/// CUDA and the simulator's threads do not survive fork(). The fork handler in the child resets the
/// pointer to the driver. The hot path therefore needs no additional check: it finds no driver, and
/// the slow path finds the reason. A fork matters once CUDA's devices were counted, or the
/// simulator's driver exists.
///
/// The flag is outside of State, so hot paths read it without that object's guard.
constinit std::atomic<bool> bad_fork{false};

struct State {
  std::atomic<Driver*> active{nullptr};
  std::atomic<const Selection*> selection{nullptr};
  std::atomic<bool> touched{false};  ///< a fork from now on makes a bad child
  std::mutex mutex;                  ///< guards what follows and the making of the above
  Driver* native = nullptr;          ///< the platform's own driver
  Driver* base = nullptr;            ///< native, or what exchange_driver() put in its place
  std::array<DriverDecorator, kDriverLayers> decorators{};

  void activate() {
    Driver* front = base;
    for (const DriverDecorator decorate : decorators) {
      if (decorate != nullptr) front = decorate(*front);
    }
    active.store(front, std::memory_order_release);
  }
};

// Leaked on purpose: static destructors of the user's program may still free device memory.
State& state() {
  static State& instance = *new State;
  return instance;
}

void mark_child() {
  State& s = state();
  if (!s.touched.load(std::memory_order_relaxed)) return;
  bad_fork.store(true, std::memory_order_relaxed);
  s.active.store(nullptr, std::memory_order_release);
}

void detect_forks(State& s) {
  static const int kRegistered = pthread_atfork(nullptr, nullptr, mark_child);
  if (kRegistered != 0)
    logging::warn("forked processes will not be detected: pthread_atfork failed");
  s.touched.store(true, std::memory_order_relaxed);
}

Selection select_simulated(int physical) {
  Selection selection;
  selection.platform = Platform::simulated;
  if (const auto order = env::get("CUDA_DEVICE_ORDER"); order && !is_valid_device_order(*order)) {
    throw InvalidArgument(fmt::format(
        "CUDA_DEVICE_ORDER: expected FASTEST_FIRST or PCI_BUS_ID, but got '{}'", *order));
  }
  const auto mask = env::get("CUDA_VISIBLE_DEVICES");
  if (!mask) {
    for (int i = 0; i < physical; ++i) selection.visible.push_back(i);
  } else {
    const VisibleDevices parsed = parse_visible_devices(*mask, sim_device_identities(physical));
    if (parsed.invalid()) {
      throw InvalidArgument(fmt::format(
          "CUDA_VISIBLE_DEVICES: expected every device at most once, but got '{}'", *mask));
    }
    for (const DroppedToken& dropped : parsed.dropped) {
      logging::warn(fmt::format("CUDA_VISIBLE_DEVICES={}: '{}' shows no device: {}", *mask,
                                dropped.token, dropped.reason));
    }
    selection.visible = parsed.visible;
    if (selection.visible.empty()) {
      selection.problem = fmt::format(
          "No device is visible: CUDA_VISIBLE_DEVICES='{}' hides every simulated device", *mask);
    }
  }
  selection.count = static_cast<int>(selection.visible.size());
  return selection;
}

Selection select_platform() {
  env::check_variables();
  if (const auto simulated = env::kSimDevices.get()) {
    return select_simulated(static_cast<int>(*simulated));
  }
  pass_launch_blocking_to_cuda();
  CudaProbe probe = probe_cuda();
  Selection selection;
  if (probe.count > 0) {
    detect_forks(state());
    selection.platform = Platform::cuda;
    selection.count = probe.count;
  } else {
    selection.problem = fmt::format(
        "No CUDA device is available and GANTRY_SIM_DEVICES is not set: {}; set "
        "GANTRY_SIM_DEVICES=4 to use simulated devices",
        probe.problem);
  }
  return selection;
}

const Selection& selection_locked(State& s) {
  if (const Selection* known = s.selection.load(std::memory_order_relaxed)) return *known;
  const auto* made = new Selection(select_platform());  // leaked with the rest of the state
  s.selection.store(made, std::memory_order_release);
  return *made;
}

const Selection& selection() {
  State& s = state();
  if (const Selection* known = s.selection.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(s.mutex);
  return selection_locked(s);
}

[[noreturn]] void throw_bad_fork() {
  throw ForkError(
      "Cannot use devices in a forked process: this process was forked after its parent "
      "initialised them. Fork before the first device call, or start the child with exec");
}

[[gnu::noinline]] Driver& initialize() {
  State& s = state();
  if (bad_fork.load(std::memory_order_relaxed)) throw_bad_fork();
  apply_sync_debug_variable();
  const std::lock_guard lock(s.mutex);
  if (Driver* ready = s.active.load(std::memory_order_relaxed)) return *ready;
  const Selection& selected = selection_locked(s);
  if (selected.count == 0) throw NotSupported(selected.problem);
  std::unique_ptr<Driver> made;
  switch (selected.platform) {
    case Platform::cuda:
      made = make_cuda_driver(selected.count);
      break;
    case Platform::simulated:
      made = make_sim_driver(selected.visible);
      break;
    case Platform::none:
      break;
  }
  warn_of_missing_sanitizers();
  detect_forks(s);
  s.native = s.base = made.get();
  try {
    s.activate();
  } catch (...) {
    s.native = s.base = nullptr;
    throw;
  }
  (void)made.release();
  return *s.active.load(std::memory_order_relaxed);
}

}  // namespace

Platform platform() { return selection().platform; }

int table_size() { return selection().count; }

int device_count() {
  if (in_bad_fork()) throw_bad_fork();
  return table_size();
}

std::vector<Device> devices() {
  std::vector<Device> all;
  for (int i = 0, count = device_count(); i < count; ++i) all.push_back(Device::cuda(i));
  return all;
}

bool is_available() { return device_count() > 0; }

bool is_initialized() noexcept { return active_driver() != nullptr; }

void init() { (void)driver(); }

bool in_bad_fork() noexcept { return bad_fork.load(std::memory_order_relaxed); }

Driver* active_driver() noexcept { return state().active.load(std::memory_order_acquire); }

Driver& driver() {
  Driver* const ready = active_driver();
  if (ready != nullptr) [[likely]] {
    return *ready;
  }
  return initialize();
}

Driver& driver_for(int index) {
  Driver& result = driver();
  const int count = selection().count;
  if (index < 0 || index >= count) [[unlikely]] {
    throw InvalidArgument(fmt::format("invalid device cuda:{}: this process sees {} device{}",
                                      index, count, count == 1 ? "" : "s"),
                          Device::cuda(index).str());
  }
  return result;
}

Driver* exchange_driver(Driver* replacement) {
  (void)driver();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  Driver* const before = std::exchange(s.base, replacement != nullptr ? replacement : s.native);
  s.activate();
  return before;
}

void decorate_driver(DriverLayer layer, DriverDecorator decorate) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.decorators[static_cast<std::size_t>(layer)] = decorate;
  if (s.active.load(std::memory_order_relaxed) != nullptr) s.activate();
}

}  // namespace gantry
