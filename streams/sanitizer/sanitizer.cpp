#include <gantry/streams/sanitizer.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "core/env/settings.hpp"
#include "core/stacks/call_site.hpp"
#include "device/platform/platform.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "streams/sanitizer/sanitizing_driver.hpp"

namespace gantry::sanitizer {

constinit std::atomic<Mode> current_mode{Mode::off};

namespace {

thread_local constinit int suspensions = 0;
thread_local constinit const char* operation_name = nullptr;

// Guards the change of the mode.
std::mutex& change_mutex() {
  static auto& mutex = *new std::mutex();
  return mutex;
}

void set_mode(Mode mode) noexcept {
  current_mode.store(mode, std::memory_order_relaxed);
  set_observer(Observer::sanitizer, mode != Mode::off);
}

void start(Mode mode) {
  if (current_mode.load(std::memory_order_relaxed) == Mode::off) {
    Tracker::instance().reset();
    stacks::prepare_call_sites();
  }
  set_mode(mode);
}

// The driver in front of each driver; never destroyed, since other threads may be inside.
Driver* decorated(Driver& driver) {
  static auto& drivers = *new std::unordered_map<Driver*, std::unique_ptr<SanitizingDriver>>;
  std::unique_ptr<SanitizingDriver>& sanitizing = drivers[&driver];
  if (sanitizing == nullptr) sanitizing = std::make_unique<SanitizingDriver>(driver);
  Tracker::instance().set_driver(driver);
  return sanitizing.get();
}

// Asks the environment when the first device is used. Later changes are enable()'s.
Driver* decorated_if_wanted(Driver& driver) {
  const std::string value = env::kSanitizer.get();
  if (value == "off") return &driver;
  static std::atomic<bool> has_started{false};
  if (!has_started.exchange(true)) {
    const std::lock_guard lock(change_mutex());
    start(value == "warn" ? Mode::warn : Mode::throw_);
  }
  return decorated(driver);
}

[[maybe_unused]] const bool kIsRegistered = [] {
  decorate_driver(DriverLayer::sanitizer, decorated_if_wanted);
  return true;
}();

}  // namespace

void enable(Mode mode) {
  (void)driver();
  // Once there, the driver stays: it counts orders for the next enable().
  if (mode != Mode::off) decorate_driver(DriverLayer::sanitizer, decorated);
  const std::lock_guard lock(change_mutex());
  if (mode == Mode::off) {
    set_mode(mode);
  } else {
    start(mode);
  }
}

Mode mode() noexcept { return current_mode.load(std::memory_order_relaxed); }

Report report() {
  Report result;
  for (const Finding& finding : Tracker::instance().findings().all()) {
    result.races.push_back(finding.race());
  }
  result.operations = Tracker::instance().operations();
  result.unknown_replays = Tracker::instance().findings().unknown_replays();
  return result;
}

void clear() { Tracker::instance().clear_findings(); }

void uses(std::string_view operation, const Stream& stream, std::initializer_list<Use> operands) {
  uses(operation, stream, std::span(operands.begin(), operands.size()));
}

void uses(std::string_view operation, const Stream& stream, std::span<const Use> operands) {
  Submission(operation, stream, operands).commit();
}

void uses_on_host(std::string_view operation, std::initializer_list<Use> operands) {
  uses_on_host(operation, std::span(operands.begin(), operands.size()));
}

void uses_on_host(std::string_view operation, std::span<const Use> operands) {
  if (is_on() && !Suspension::is_active()) Tracker::instance().enter_on_host(operation, operands);
}

void orders(const Stream& before, const Stream& after) {
  if (!is_on()) return;
  const auto first = Tracker::instance().locate(before.native());
  const auto second = Tracker::instance().locate(after.native());
  if (first && second) Tracker::instance().order(*first, *second);
}

Suspension::Suspension() noexcept { ++suspensions; }
Suspension::~Suspension() { --suspensions; }
bool Suspension::is_active() noexcept { return suspensions != 0; }

OperationName::OperationName(const char* name) noexcept
    : previous_(std::exchange(operation_name, name)) {}
OperationName::~OperationName() { operation_name = previous_; }

void Submission::enter(std::string_view operation, const Stream& stream,
                       std::span<const Use> operands) {
  if (Suspension::is_active() || in_bad_fork()) return;
  if (operation_name != nullptr) operation = operation_name;
  entry_ = Tracker::instance().enter(operation, stream, operands);
}

Submission::Submission(NativeGraph graph, const Stream& stream) {
  if (!is_on() || Suspension::is_active()) return;
  entry_ = Tracker::instance().enter_replay(graph, stream);
}

void follow_queue(const void* queue, const Stream& stream) {
  if (const auto at = Tracker::instance().locate(stream.native())) {
    Tracker::instance().follow(queue, *at);
  }
}

void lead_queue(const void* queue, const Stream& stream) {
  if (const auto at = Tracker::instance().locate(stream.native())) {
    Tracker::instance().lead(queue, *at);
  }
}

void forget_queue(const void* queue) noexcept {
  if (!in_bad_fork()) Tracker::instance().forget_queue(queue);
}

void memory_allocated(const void* data, std::size_t bytes) noexcept {
  try {
    if (!in_bad_fork()) Tracker::instance().take_memory(data, bytes);
  } catch (...) {
    // Without memory for the bookkeeping the old accesses stay.
  }
}

void memory_freed(const void* data, std::size_t bytes, const StreamClock* stream) noexcept {
  try {
    // Another stream may have the handle, whose order says nothing about the block.
    if (stream != nullptr && !stream->may_submit()) return;
    if (!in_bad_fork()) Tracker::instance().free_memory(data, bytes, stream);
  } catch (...) {
    // Without memory for the bookkeeping there is no report.
  }
}

void memory_recorded(const void* data, const Stream& stream, bool until_free) noexcept {
  try {
    if (!in_bad_fork()) Tracker::instance().record_stream(data, stream, until_free);
  } catch (...) {
    // Without memory for the bookkeeping the free may be reported.
  }
}

UncheckedMemory::UncheckedMemory(const void* data, std::size_t bytes) : data_(data), bytes_(bytes) {
  Tracker::instance().leave_unchecked(data_, bytes_);
}

UncheckedMemory::~UncheckedMemory() {
  if (!in_bad_fork()) Tracker::instance().check_memory(data_, bytes_);
}

}  // namespace gantry::sanitizer
