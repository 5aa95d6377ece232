#include "device/platform/sync_debug_driver.hpp"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/env/settings.hpp"
#include "core/stacks/call_place.hpp"
#include "device/platform/platform.hpp"

namespace gantry {

namespace {

constinit std::atomic<HostBlocking> current_mode{HostBlocking::allowed};
constinit std::atomic<bool> is_mode_set{false};  // by the program, or by the variable
thread_local constinit int needed_scopes = 0;

// The places that were warned about. Leaked: destructors of the program may still block.
struct WarnedPlaces {
  std::mutex mutex;
  std::unordered_set<std::uint32_t> stacks;
  std::unordered_set<std::string> texts;

  static WarnedPlaces& instance() {
    static auto& places = *new WarnedPlaces;
    return places;
  }
};

std::string name_of(NativeStream stream) {
  return stream.handle == nullptr ? fmt::format("the default stream of cuda:{}", stream.device)
                                  : fmt::format("a stream of cuda:{}", stream.device);
}

// Once for each place of the program, or for each text where places are unknown.
void warn(std::uint32_t stack, const std::string& doing) {
  WarnedPlaces& warned = WarnedPlaces::instance();
  const std::lock_guard lock(warned.mutex);
  if (stack != 0 && !warned.stacks.insert(stack).second) return;
  const std::string call = describe_call_place(stack).describe();
  if (!warned.texts.insert(call.empty() ? doing : call).second) return;
  logging::warn(
      fmt::format("sync debug: {} blocks the host{}{}", doing, call.empty() ? "" : ", in ", call));
}

[[noreturn]] void refuse(std::uint32_t stack, const std::string& doing, std::string_view device) {
  const CallPlace call = describe_call_place(stack);
  throw Error(fmt::format("{}: called a synchronizing operation: {} blocks the host{}{}; "
                          "SyncDebug::error forbids it",
                          call.function.empty() ? "sync debug" : call.function, doing,
                          call.place.empty() ? "" : ", at ", call.place),
              device);
}

void note(bool may_refuse, const std::string& doing, std::string_view device = {}) {
  const HostBlocking mode = current_mode.load(std::memory_order_relaxed);
  if (mode == HostBlocking::allowed) return;
  const std::uint32_t stack = capture_call_place();
  if (mode == HostBlocking::refused && may_refuse && needed_scopes == 0) {
    refuse(stack, doing, device);
  }
  warn(stack, doing);
}

void note_noexcept(const char* doing) noexcept {
  try {
    note(/*may_refuse=*/false, doing);
  } catch (const std::exception&) {
    // Without memory there is no warning.
  }
}

// The decorator of each driver; never destroyed, since other threads may be inside.
Driver* decorated(Driver& driver) {
  static auto& decorators = *new std::unordered_map<Driver*, std::unique_ptr<SyncDebugDriver>>;
  std::unique_ptr<SyncDebugDriver>& decorator = decorators[&driver];
  if (decorator == nullptr) decorator = std::make_unique<SyncDebugDriver>(driver);
  return decorator.get();
}

}  // namespace

void set_host_blocking(HostBlocking mode) {
  is_mode_set.store(true, std::memory_order_relaxed);
  current_mode.store(mode, std::memory_order_relaxed);
  decorate_driver(DriverLayer::sync_debug, mode == HostBlocking::allowed ? nullptr : decorated);
}

HostBlocking host_blocking() noexcept { return current_mode.load(std::memory_order_relaxed); }

void announce_host_wait(const char* doing) {
  if (current_mode.load(std::memory_order_relaxed) != HostBlocking::allowed) {
    note(/*may_refuse=*/true, doing);
  }
}

BlockingIsNeeded::BlockingIsNeeded() noexcept { ++needed_scopes; }
BlockingIsNeeded::~BlockingIsNeeded() { --needed_scopes; }

void SyncDebugDriver::synchronize_device(int device) {
  note(true, fmt::format("synchronizing cuda:{}", device), fmt::format("cuda:{}", device));
  ForwardingDriver::synchronize_device(device);
}

void SyncDebugDriver::synchronize_stream(NativeStream stream) {
  note(true, "synchronizing " + name_of(stream), fmt::format("cuda:{}", stream.device));
  ForwardingDriver::synchronize_stream(stream);
}

void SyncDebugDriver::synchronize_event(NativeEvent event) {
  note(true, "synchronizing an event");
  ForwardingDriver::synchronize_event(event);
}

void SyncDebugDriver::copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) {
  if (bytes > 0 && !wrapped().is_capturing(stream)) {
    const PointerKind to = wrapped().pointer_info(dst).kind;
    const PointerKind from = wrapped().pointer_info(src).kind;
    const bool has_pageable = to == PointerKind::unregistered || from == PointerKind::unregistered;
    if (has_pageable || (to == PointerKind::pinned && from == PointerKind::pinned)) {
      note(true,
           fmt::format("copying {} bytes {} pageable host memory", bytes,
                       to == PointerKind::unregistered ? "to" : "from"),
           fmt::format("cuda:{}", stream.device));
    }
  }
  ForwardingDriver::copy(dst, src, bytes, stream);
}

void SyncDebugDriver::deallocate(int device, void* data) {
  if (data != nullptr) note_noexcept("freeing device memory to the driver");
  ForwardingDriver::deallocate(device, data);
}

void SyncDebugDriver::deallocate_pinned(void* data) {
  if (data != nullptr) note_noexcept("freeing page-locked memory to the driver");
  ForwardingDriver::deallocate_pinned(data);
}

void SyncDebugDriver::unregister_host(void* data) {
  note_noexcept("unlocking pages of host memory");
  ForwardingDriver::unregister_host(data);
}

void SyncDebugDriver::close_memory(void* base) {
  note_noexcept("closing another process's memory");
  ForwardingDriver::close_memory(base);
}

void apply_sync_debug_variable() {
  if (is_mode_set.load(std::memory_order_relaxed)) return;
  const std::string value = env::kSyncDebug.get();
  if (value == "warn") set_host_blocking(HostBlocking::warned);
  if (value == "error") set_host_blocking(HostBlocking::refused);
}

}  // namespace gantry
