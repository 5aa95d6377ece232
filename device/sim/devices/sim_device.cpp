#include "device/sim/devices/sim_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "device/drivers/fault_record.hpp"
#include "device/drivers/fault_source.hpp"
#include "device/sim/streams/sim_schedule.hpp"
#include "machine/sim_identity.hpp"

namespace gantry {
namespace sim {

PeerTable::PeerTable() {
  for (auto& row : allowed_) row.store(~std::uint64_t{0}, std::memory_order_relaxed);
}

void PeerTable::allow(int from, int to, bool value) {
  auto& row = allowed_[static_cast<std::size_t>(from)];
  if (value) {
    row.fetch_or(mask(to), std::memory_order_relaxed);
  } else {
    row.fetch_and(~mask(to), std::memory_order_relaxed);
    enabled_[static_cast<std::size_t>(from)].fetch_and(~mask(to), std::memory_order_relaxed);
  }
}

SimDevice::SimDevice(int index, int physical, std::size_t capacity, Schedule* schedule)
    : index_(index), physical_(physical), capacity_(capacity), schedule_(schedule) {}

DeviceProperties SimDevice::properties() const {
  DeviceProperties result;
  result.name = "Simulated GPU";
  result.uuid = sim_uuid(physical_);
  result.pci_bus_id = sim_pci_bus_id(physical_);
  result.major = 9;
  result.minor = 0;
  result.total_memory = capacity_;
  result.multiprocessors = 132;
  result.l2_bytes = std::size_t{60} << 20;
  result.warp_size = 32;
  result.max_threads_per_block = 1024;
  result.max_threads_per_multiprocessor = 2048;
  result.shared_memory_per_block = std::size_t{48} << 10;
  result.shared_memory_per_block_optin = std::size_t{227} << 10;
  result.integrated = false;
  result.can_map_host_memory = true;
  return result;
}

void SimDevice::raise_fault() {
  if (const std::optional<FaultRecord> fault = take_fault(fault_)) [[unlikely]] {
    throw IndexError(fault_text(*fault, index_), fmt::format("cuda:{}", index_));
  }
  raise_source_faults(index_);
}

bool SimDevice::take(std::size_t bytes) {
  std::size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > capacity_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

NativeMemoryInfo SimDevice::memory_info() const {
  return {capacity_ - used_.load(std::memory_order_relaxed), capacity_};
}

SimStream& SimDevice::create_stream() {
  const std::lock_guard lock(mutex_);
  SimStream& stream = take_stream();
  [[maybe_unused]] const bool is_new = live_.insert(&stream).second;
  GANTRY_ASSERT(is_new, "a stream is made that is in use");
  return stream;
}

SimStream& SimDevice::thread_stream() {
  thread_local const auto thread = std::make_shared<const char>();
  const auto mine = [this]() -> SimStream* {
    for (const ThreadStream& known : thread_streams_) {
      if (known.thread.lock() == thread) return known.stream;
    }
    return nullptr;
  };
  {
    const std::shared_lock lock(mutex_);
    if (SimStream* stream = mine()) return *stream;
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(thread_streams_, [this](const ThreadStream& known) {
    if (!known.thread.expired()) return false;
    retired_.push_back(known.stream);
    return true;
  });
  SimStream& stream = take_stream();
  thread_streams_.push_back({thread, &stream});
  return stream;
}

SimStream& SimDevice::take_stream() {
  const auto idle = std::find_if(retired_.begin(), retired_.end(),
                                 [](const SimStream* s) { return s->done(s->submitted()); });
  SimStream* stream = nullptr;
  if (idle != retired_.end()) {
    stream = *idle;
    retired_.erase(idle);
    stream->clear_error();
  } else {
    const int number = static_cast<int>(streams_.size()) + 1;
    streams_.push_back(std::make_unique<SimStream>(index_, number, schedule_));
    stream = streams_.back().get();
  }
  static std::atomic<std::uint64_t> identities{0};
  stream->identity.store(identities.fetch_add(1, std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  return *stream;
}

bool SimDevice::has_stream(const void* stream) const {
  const std::shared_lock lock(mutex_);
  return live_.contains(stream);
}

bool SimDevice::retire_stream(SimStream* stream) {
  const std::lock_guard lock(mutex_);
  if (live_.erase(stream) == 0) return false;
  retired_.push_back(stream);
  return true;
}

SimStream& SimDevice::make_default_stream() {
  const std::lock_guard lock(mutex_);
  if (!default_stream_owner_) {
    default_stream_owner_ = std::make_unique<SimStream>(index_, 0, schedule_);
    default_stream_.store(default_stream_owner_.get(), std::memory_order_release);
  }
  return *default_stream_owner_;
}

std::vector<SimStream*> SimDevice::all_streams() const {
  const std::shared_lock lock(mutex_);
  std::vector<SimStream*> all;
  if (default_stream_owner_) all.push_back(default_stream_owner_.get());
  for (const auto& stream : streams_) all.push_back(stream.get());
  return all;
}

void SimDevice::drain() const {
  const std::vector<SimStream*> streams = all_streams();
  if (schedule_ != nullptr) {
    std::vector<ScheduleTarget> last;
    for (const SimStream* stream : streams) last.push_back({stream, stream->submitted()});
    schedule_->force(last);
  }
  for (const SimStream* stream : streams) stream->drain();
}

void SimDevice::rethrow_error() {
  for (SimStream* stream : all_streams()) stream->rethrow_error();
}

void SimDevice::stop() {
  for (SimStream* stream : all_streams()) stream->stop();
}

}  // namespace sim
}  // namespace gantry
