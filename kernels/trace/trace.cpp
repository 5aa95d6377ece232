#include <gantry/kernels/trace.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "core/env/settings.hpp"
#include "core/observers.hpp"
#include "core/processes/boot_id.hpp"
#include "core/stacks/call_site.hpp"
#include "device/drivers/profiling.hpp"
#include "device/platform/platform.hpp"
#include "kernels/trace/memory_counters.hpp"
#include "kernels/trace/trace_file.hpp"
#include "kernels/trace/wanted_trace.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"

namespace gantry::trace {
namespace {

// The trace that is recorded now.
struct Session {
  std::filesystem::path path;
  TraceOrigin origin;
  bool has_device_activity = false;
};

struct State {
  std::mutex mutex;
  std::optional<Session> session;
};

State& state() {
  static auto& instance = *new State();
  return instance;
}

// The first number of these variables, which launchers set. A trace needs no job, so a malformed
// value is no error here.
int first_number(std::initializer_list<const char*> variables, int otherwise) {
  for (const char* variable : variables) {
    const std::optional<std::string> text = env::get(variable);
    if (!text || text->empty()) continue;
    int number = 0;
    const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error == std::errc() && number >= 0) return number;
  }
  return otherwise;
}

int own_rank() {
  return first_number(
      {"GANTRY_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"}, 0);
}

int world_size_of_job() {
  return first_number(
      {"GANTRY_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"}, 1);
}

std::filesystem::path expand(const std::filesystem::path& path, int rank) {
  std::string text = path.string();
  std::string result;
  while (!text.empty()) {
    const auto open = text.find('{');
    result += text.substr(0, open);
    if (open == std::string::npos) break;
    const auto close = text.find('}', open);
    const std::string name =
        close == std::string::npos ? text.substr(open) : text.substr(open, close - open + 1);
    if (name == "{rank}") {
      result += std::to_string(rank);
    } else if (name == "{pid}") {
      result += std::to_string(::getpid());
    } else {
      throw InvalidArgument(fmt::format(
          "trace::start: expected the placeholders {{rank}} and {{pid}}, but got '{}'", name));
    }
    text.erase(0, close + 1);
  }
  return result;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

void write_at_exit() {
  State& now = state();
  std::optional<Session> session;
  {
    const std::lock_guard lock(now.mutex);
    session = std::exchange(now.session, std::nullopt);
  }
  if (!session || session->origin.pid != ::getpid()) return;  // a fork has no trace of its own
  set_observer(Observer::trace, false);
  try {
    write_trace(session->path, session->origin, TraceLog::instance().end());
  } catch (const std::exception& error) {
    logging::warn(
        fmt::format("trace: failed to write {}: {}", session->path.string(), error.what()));
  }
}

// Of the devices that have memory of this process: no context is created. The first error is
// returned, so that the trace is written all the same.
std::exception_ptr wait_for_devices() {
  std::exception_ptr first;
  if (!is_initialized()) return first;
  for (int device = 0; device < table_size(); ++device) {
    if (memory::heap_allocator().find_heap(device) == nullptr) continue;
    try {
      synchronize(Device::cuda(device));
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  return first;
}

}  // namespace

namespace {

std::string boot_or_empty() {
  try {
    return kernel_boot_id();
  } catch (const Error&) {
    return {};
  }
}

void start_on(Platform platform, const std::filesystem::path& path, const TraceOptions& options) {
  if (options.max_events == 0) {
    throw InvalidArgument("trace::start: expected max_events of at least 1, but got 0");
  }
  const int rank = own_rank();
  Session session;
  session.path = expand(path, rank);
  session.origin.rank = rank;
  session.origin.pid = ::getpid();
  session.origin.host = host_name();
  session.origin.boot = boot_or_empty();
  State& now = state();
  const std::lock_guard lock(now.mutex);
  if (now.session) {
    throw InvalidArgument("trace::start: expected no trace to be recorded, but got one for " +
                          now.session->path.string());
  }
  static const int kRegistered = std::atexit(write_at_exit);
  static_cast<void>(kRegistered);
  stacks::prepare_call_sites();
  kernels::forget_memory_counters();
  session.origin.start_ns = now_ns();
  session.origin.start_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count();
  if (!TraceLog::instance().begin(options.max_events)) {
    throw InvalidArgument("trace::start: expected no trace to be recorded, but got one");
  }
  if (platform == Platform::cuda) {
    const std::string problem = start_device_activity();
    session.has_device_activity = problem.empty();
    if (!problem.empty()) logging::warn("trace: no work of the devices is recorded: " + problem);
  }
  set_observer(Observer::trace, true);
  now.session = std::move(session);
}

}  // namespace

Driver* start_if_wanted(Driver& driver) {
  static std::atomic<bool> has_started{false};
  const std::string path = env::kTrace.text();
  if (path.empty() || has_started.exchange(true)) return &driver;
  const bool is_job = world_size_of_job() > 1;
  if (is_job && path.find("{rank}") == std::string::npos &&
      path.find("{pid}") == std::string::npos) {
    throw InvalidArgument(fmt::format(
        "GANTRY_TRACE: expected a path with {{rank}} or {{pid}} in a job, but got '{}'", path));
  }
  start_on(driver.platform(), path, {});
  return &driver;
}

void start(const std::filesystem::path& path, const TraceOptions& options) {
  start_on(platform(), path, options);
}

TraceSummary stop() {
  State& now = state();
  std::optional<Session> session;
  {
    const std::lock_guard lock(now.mutex);
    session = std::exchange(now.session, std::nullopt);
  }
  if (!session) throw InvalidArgument("trace::stop: expected a trace to be recorded, but got none");
  set_observer(Observer::trace, false);
  const std::exception_ptr error = wait_for_devices();
  if (session->has_device_activity) stop_device_activity();
  Recorded recorded = TraceLog::instance().end();
  const TraceSummary summary{.events = recorded.events.size(), .dropped = recorded.dropped};
  write_trace(session->path, session->origin, std::move(recorded));
  if (error != nullptr) std::rethrow_exception(error);
  return summary;
}

bool is_recording() noexcept { return is_on(); }

Recording::Recording(const std::filesystem::path& path, const TraceOptions& options) {
  start(path, options);
}

Recording::~Recording() {
  if (!is_recording()) return;
  try {
    stop();
  } catch (const std::exception& error) {
    logging::warn(fmt::format("trace: failed to write the file: {}", error.what()));
  }
}

Range::Range(std::string name) : name_(std::move(name)), begin_ns_(is_on() ? now_ns() : 0) {}

Range::~Range() {
  if (begin_ns_ == 0) return;
  TraceLog::instance().add({.name = std::move(name_),
                            .category = "range",
                            .track = this_thread_track(),
                            .begin_ns = begin_ns_,
                            .duration_ns = now_ns() - begin_ns_});
}

}  // namespace gantry::trace
