#include "device/sim/sim_driver.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>

#include "core/env/settings.hpp"
#include "core/trace_log.hpp"
#include "device/drivers/background_calls.hpp"
#include "device/drivers/launch_blocking.hpp"
#include "device/drivers/memory_reclaim.hpp"
#include "device/sim/devices/sim_error.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace gantry {

std::unique_ptr<Driver> make_sim_driver(int devices) {
  if (devices < 1 || devices > sim::kMaxDevices) {
    throw InvalidArgument(
        fmt::format("simulated devices: expected 1 to {}, but got {}", sim::kMaxDevices, devices));
  }
  std::vector<int> visible(static_cast<std::size_t>(devices));
  std::iota(visible.begin(), visible.end(), 0);
  return make_sim_driver(visible);
}

std::unique_ptr<Driver> make_sim_driver(const std::vector<int>& visible) {
  auto made = std::make_unique<sim::SimDriver>(visible);
  close_background_calls_at_exit();
  return made;
}

bool is_sim_stream_idle(NativeStream stream) noexcept { return sim::SimDriver::is_idle(stream); }

namespace sim {

namespace {

// Records the time of the task, if a trace is recorded.
Task traced(const SimStream& stream, Task task) {
  return trace::timed_task(
      std::move(task),
      {.device = stream.device(), .number = static_cast<std::uint64_t>(stream.number())}, "task");
}

constexpr std::size_t kDefaultCapacity = std::size_t{1} << 30;

constexpr useconds_t kShortestLookUs = 5;
constexpr useconds_t kLongestLookUs = 200;

thread_local int t_current_device = 0;

std::atomic<SimDriver*> g_active{nullptr};

// The writer of the word does not call the driver, so the word is polled.
void await_word(const std::uint32_t* word, std::uint32_t value,
                const std::atomic<bool>& is_closing) {
  const auto is_below = [value](std::uint32_t seen) {
    return static_cast<std::int32_t>(seen - value) < 0;
  };
  for (useconds_t pause = kShortestLookUs; is_below(__atomic_load_n(word, __ATOMIC_RELAXED));
       pause = std::min(2 * pause, kLongestLookUs)) {
    if (is_closing.load(std::memory_order_relaxed)) return;
    if (!pause_task()) ::usleep(pause);
  }
  (void)__atomic_load_n(word, __ATOMIC_ACQUIRE);  // the order that the caller asked for
}

}  // namespace

// Note [Launch blocking]
// With CUDA_LAUNCH_BLOCKING=1 or GANTRY_LAUNCH_BLOCKING=1 a launch of a kernel or graph returns
// when the work is done, and rethrows its error. Copies, fills and host functions stay
// asynchronous, as CUDA's do. Kernels that wait for peers are an exception. The thread that
// launches one may have to launch the peers' kernels next, so waiting could deadlock. A launch
// therefore does not wait while its stream holds such a kernel, a wait for a word, or a wait for
// another process's event. The same applies if the stream waits for an event of a stream that holds
// one of these.
bool SimDriver::launch_blocks(const SimStream& stream, KernelWaits waits) const {
  return launch_blocking_ && waits == KernelWaits::never && !stream.is_held_by_peers();
}

SimDriver::SimDriver(const std::vector<int>& visible)
    : launch_blocking_(reads_launch_blocking()),
      stream_bytes_(env::kSimStreamMemory.get().value_or(0)) {
  if (visible.empty() || visible.size() > kMaxDevices) {
    throw InvalidArgument(fmt::format("simulated devices: expected 1 to {}, but got {}",
                                      kMaxDevices, visible.size()));
  }
  const std::size_t capacity = env::kSimMemory.get().value_or(kDefaultCapacity);
  if (capacity < AddressSpace::kGranularity) {
    throw InvalidArgument(fmt::format(
        "GANTRY_SIM_MEMORY: expected at least 2M, the least that a device hands out, but got '{}'",
        env::kSimMemory.text()));
  }
  if (const std::optional<ScheduleChoice> choice = read_schedule_choice()) {
    schedule_ = std::make_unique<Schedule>(*choice);
  }
  for (std::size_t i = 0; i < visible.size(); ++i) {
    devices_.push_back(
        std::make_unique<SimDevice>(static_cast<int>(i), visible[i], capacity, schedule_.get()));
  }
  memory_ = std::make_unique<AddressSpace>(devices_, peers_);
  for (const auto& device : devices_) {
    pools_.push_back(std::make_unique<MemoryPool>(*device, *memory_));
  }
  g_active.store(this, std::memory_order_release);
}

SimDriver::~SimDriver() {
  SimDriver* self = this;
  g_active.compare_exchange_strong(self, nullptr, std::memory_order_acq_rel);
  is_closing_.store(true, std::memory_order_relaxed);
  if (schedule_ != nullptr) schedule_->close();
  // All threads end before any stream is freed: streams wait for each other's tickets.
  for (const auto& device : devices_) device->stop();
}

SimDriver& SimDriver::active() {
  SimDriver* driver = g_active.load(std::memory_order_acquire);
  if (driver == nullptr) throw NotSupported("there are no simulated devices in this process");
  return *driver;
}

SimDevice& SimDriver::device_of(int device, std::string_view doing) const {
  if (on_stream_thread()) {
    fail(kNotPermitted, doing, device, "a task on a stream called the driver");
  }
  if (device < 0 || static_cast<std::size_t>(device) >= devices_.size()) {
    fail(kInvalidDevice, doing, -1,
         fmt::format("expected 0 to {}, but got {}", devices_.size() - 1, device));
  }
  return *devices_[static_cast<std::size_t>(device)];
}

SimStream& SimDriver::stream_of(NativeStream stream, std::string_view doing) const {
  SimDevice& device = device_of(stream.device, doing);
  if (stream.handle == nullptr) return device.default_stream();
  // cudaStreamPerThread
  if (reinterpret_cast<std::uintptr_t>(stream.handle) == 2) return device.thread_stream();
  if (!device.has_stream(stream.handle)) {
    fail(kInvalidResourceHandle, doing, stream.device,
         fmt::format("cuda:{} has no such stream", stream.device));
  }
  return *static_cast<SimStream*>(stream.handle);
}

void SimDriver::submit(SimStream& stream, Task task, SimStream::Options options) {
  task = traced(stream, std::move(task));
  if (captures_.append(stream, task, options.waits)) return;
  stream.submit(std::move(task), options);
}

void SimDriver::submit_blocking(SimStream& stream, Task task) {
  task = traced(stream, std::move(task));
  if (captures_.append(stream, task)) return;
  finish(stream, stream.submit(std::move(task), {.mark = true}));
}

void SimDriver::finish(SimStream& stream, std::uint64_t ticket) {
  stream.wait(ticket);
  stream.acquire(ticket);
  stream.rethrow_error_before(ticket);
  devices_[static_cast<std::size_t>(stream.device())]->raise_fault();
}

void launch(NativeStream stream, Task task, KernelWaits waits) {
  SimDriver::active().launch(stream, std::move(task), waits);
}

void check_device_access(int device, const void* data, std::size_t bytes) {
  SimDriver::active().check_device_access(device, data, bytes);
}

void SimDriver::launch(NativeStream stream, Task task, KernelWaits waits) {
  SimStream& s = stream_of(stream, "launching a kernel");
  if (launch_blocks(s, waits)) {
    try {
      submit_blocking(s, std::move(task));
    } catch (...) {
      rethrow_with_call_place();
    }
  } else {
    submit(s, std::move(task), {.waits = waits});
  }
}

void SimDriver::check_device_access(int device, const void* data, std::size_t bytes) {
  static const auto& kDoing = *new std::string("checking a kernel's argument");
  (void)device_of(device, kDoing);
  memory_->check_access(device, data, bytes, kDoing);
}

int SimDriver::device_count() { return static_cast<int>(devices_.size()); }

DeviceProperties SimDriver::properties(int device) {
  return device_of(device, "reading device properties").properties();
}

NativeMemoryInfo SimDriver::memory_info(int device) {
  return device_of(device, "reading the memory info").memory_info();
}

int SimDriver::current_device() {
  return static_cast<std::size_t>(t_current_device) < devices_.size() ? t_current_device : 0;
}

void SimDriver::set_device(int device) {
  t_current_device = device_of(device, "setting the current device").index();
}

void SimDriver::restore_device(int device) noexcept { t_current_device = device; }

void SimDriver::synchronize_device(int device) {
  const std::string doing = fmt::format("synchronizing cuda:{}", device);
  SimDevice& d = device_of(device, doing);
  captures_.refuse_device(device, doing);
  d.drain();
  d.rethrow_error();
  d.raise_fault();
}

FaultRecord* SimDriver::fault_record(int device) {
  return device_of(device, "reading the fault record").fault_record();
}

NativeStream SimDriver::create_stream(int device, int) {
  SimDevice& d = device_of(device, fmt::format("creating a stream on cuda:{}", device));
  while (!d.take(stream_bytes_)) {
    if (reclaim_memory(device)) continue;
    fail(kMemoryAllocation, fmt::format("creating a stream on cuda:{}", device), device);
  }
  return {device, &d.create_stream()};
}

Driver::PriorityRange SimDriver::priority_range(int device) {
  (void)device_of(device, "reading the priority range");
  return {.least = 0, .greatest = -5};
}

void SimDriver::destroy_stream(NativeStream stream) noexcept {
  if (stream.device < 0 || static_cast<std::size_t>(stream.device) >= devices_.size()) return;
  SimDevice& device = *devices_[static_cast<std::size_t>(stream.device)];
  if (stream.handle == nullptr || !device.has_stream(stream.handle)) return;
  auto* s = static_cast<SimStream*>(stream.handle);
  captures_.forget(*s);
  if (device.retire_stream(s)) device.give_back(stream_bytes_);
}

std::uint64_t SimDriver::stream_identity(NativeStream stream) {
  return stream_of(stream, "identifying a stream").identity.load(std::memory_order_relaxed);
}

bool SimDriver::query_stream(NativeStream stream) {
  SimStream& s = stream_of(stream, "querying a stream");
  captures_.refuse(s, "querying " + s.name());
  s.rethrow_error();
  if (!s.query()) return false;
  s.rethrow_error();
  devices_[static_cast<std::size_t>(stream.device)]->raise_fault();
  return true;
}

bool SimDriver::is_idle(NativeStream stream) noexcept {
  try {
    const SimStream& s = active().stream_of(stream, "looking at a stream");
    return s.capture.load(std::memory_order_relaxed) == nullptr && s.is_idle();
  } catch (...) {
    return false;
  }
}

void SimDriver::synchronize_stream(NativeStream stream) {
  SimStream& s = stream_of(stream, "synchronizing a stream");
  captures_.refuse(s, "synchronizing " + s.name());
  s.drain();
  s.rethrow_error();
  devices_[static_cast<std::size_t>(stream.device)]->raise_fault();
}

void SimDriver::wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) {
  SimStream& s = stream_of(stream, "waiting for a word");
  const std::string doing = "waiting for a word on " + s.name();
  if (reinterpret_cast<std::uintptr_t>(word) % sizeof *word != 0 ||
      memory_->place(word, sizeof *word, doing) != Place::pinned) {
    fail(kInvalidValue, doing, s.device(), "expected an aligned word of page-locked memory");
  }
  captures_.refuse(s, doing);
  s.submit([word, value, closing = &is_closing_] { await_word(word, value, *closing); },
           {.always = true, .waits = KernelWaits::for_peers});
}

void SimDriver::launch_host_function(NativeStream stream, void (*function)(void*), void* data) {
  SimStream& s = stream_of(stream, "launching a host function");
  if (function == nullptr) {
    fail(kInvalidValue, "launching a host function on " + s.name(), s.device());
  }
  captures_.refuse_in_body(s, "launching a host function on " + s.name());
  submit(s, [function, data] { function(data); });
}

void SimDriver::copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) {
  SimStream& s = stream_of(stream, "copying");
  transfer(dst, src, bytes, s, fmt::format("copying {} bytes on {}", bytes, s.name()));
}

void SimDriver::copy_peer(void* dst, int dst_device, const void* src, int src_device,
                          std::size_t bytes, NativeStream stream) {
  SimStream& s = stream_of(stream, "copying between devices");
  const std::string doing = fmt::format("copying {} bytes from cuda:{} to cuda:{} on {}", bytes,
                                        src_device, dst_device, s.name());
  (void)device_of(dst_device, doing);
  (void)device_of(src_device, doing);
  if (bytes == 0) return;
  const struct {
    const void* data;
    int device;
    const char* which;
  } sides[] = {{dst, dst_device, "destination"}, {src, src_device, "source"}};
  for (const auto& side : sides) {
    const PointerInfo info = memory_->info(side.data);
    if (info.kind != PointerKind::device || info.device != side.device) {
      fail(kInvalidValue, doing, s.device(),
           fmt::format("the {} {} is no memory of cuda:{}", side.which, side.data, side.device));
    }
  }
  transfer(dst, src, bytes, s, doing);
}

void SimDriver::copy_batch(std::span<const CopyRegion> runs, NativeStream stream) {
  SimStream& s = stream_of(stream, "copying runs");
  std::size_t bytes = 0;
  for (const CopyRegion& run : runs) bytes += run.bytes;
  const std::string doing =
      fmt::format("copying {} bytes in {} runs on {}", bytes, runs.size(), s.name());
  for (const CopyRegion& run : runs) {
    if (run.bytes == 0) continue;
    for (const void* const end : {run.from, static_cast<const void*>(run.to)}) {
      if (memory_->place(end, run.bytes, doing) == Place::device) continue;
      fail(kInvalidValue, doing, s.device(), fmt::format("{} is no memory of a device", end));
    }
  }
  if (bytes == 0) return;
  const trace::Label label("memcpy");
  submit(s, [kept = std::vector(runs.begin(), runs.end())] {
    for (const CopyRegion& run : kept) {
      if (run.bytes > 0) std::memmove(run.to, run.from, run.bytes);
    }
  });
}

void SimDriver::transfer(void* dst, const void* src, std::size_t bytes, SimStream& stream,
                         const std::string& doing) {
  if (bytes == 0) return;
  const trace::Label label("memcpy");
  const Place to = memory_->place(dst, bytes, doing);
  const Place from = memory_->place(src, bytes, doing);
  Task move = [dst, src, bytes] { std::memmove(dst, src, bytes); };
  if (to == Place::pageable) {
    submit_blocking(stream, std::move(move));
  } else if (from == Place::pageable && stream.capture.load(std::memory_order_relaxed) == nullptr) {
    // The source may change once the call returns, and the call orders nothing.
    auto staging = std::make_unique<std::byte[]>(bytes);
    std::memcpy(staging.get(), src, bytes);
    stream.submit(
        traced(stream, [dst, bytes, staged = std::shared_ptr<std::byte[]>(std::move(staging))] {
          std::memcpy(dst, staged.get(), bytes);
        }));
  } else {
    submit(stream, std::move(move));
  }
}

void SimDriver::fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) {
  SimStream& s = stream_of(stream, "filling memory");
  memory_->check_access(s.device(), dst, bytes,
                        fmt::format("filling {} bytes on {}", bytes, s.name()));
  if (bytes == 0) return;
  const trace::Label label("memset");
  submit(s, [dst, value, bytes] { std::memset(dst, value, bytes); });
}

bool SimDriver::can_access_peer(int from, int to) {
  (void)device_of(from, "asking for peer access");
  (void)device_of(to, "asking for peer access");
  return from == to || peers_.allowed(from, to);
}

bool SimDriver::has_peer_atomics(int from, int to) { return can_access_peer(from, to); }

void SimDriver::enable_peer_access(int from, int to) {
  const std::string doing = fmt::format("enabling peer access from cuda:{} to cuda:{}", from, to);
  (void)device_of(from, doing);
  (void)device_of(to, doing);
  if (from == to) return;
  if (!peers_.allowed(from, to)) fail(kPeerAccessUnsupported, doing, from);
  peers_.enable(from, to);
}

}  // namespace sim
}  // namespace gantry
