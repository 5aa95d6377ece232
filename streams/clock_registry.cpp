#include "streams/clock_registry.hpp"

#include <memory>
#include <utility>

#include "core/assert.hpp"
#include "core/thread_end.hpp"
#include "device/synchronizer.hpp"

namespace gantry {
namespace {

constexpr std::size_t kCachedTimestamps = 32;

// Note [Timestamp cache]
// Most events are made and destroyed by one thread, so each thread keeps the timestamps of its
// destroyed events. The pointer to the table is null after that, because destructors of other
// thread-local and static objects may still destroy events.
using TimestampCache = std::vector<Timestamp*>;
thread_local TimestampCache* cached_timestamps = nullptr;
thread_local bool is_cache_gone = false;

void delete_cache() noexcept {
  is_cache_gone = true;
  for (Timestamp* timestamp : *cached_timestamps) delete timestamp;
  delete std::exchange(cached_timestamps, nullptr);
}

TimestampCache* own_cache() {
  if (cached_timestamps != nullptr || is_cache_gone) return cached_timestamps;
  auto made = std::make_unique<TimestampCache>();
  made->reserve(kCachedTimestamps);
  cached_timestamps = made.release();
  at_thread_end(delete_cache);
  return cached_timestamps;
}

}  // namespace

std::unique_ptr<Timestamp, detail::TimestampRecycler> detail::acquire_timestamp() {
  TimestampCache* cache = own_cache();
  if (cache == nullptr || cache->empty()) {
    return std::unique_ptr<Timestamp, detail::TimestampRecycler>(new Timestamp);
  }
  std::unique_ptr<Timestamp, detail::TimestampRecycler> timestamp(cache->back());
  cache->pop_back();
  timestamp->clock = nullptr;
  return timestamp;
}

void detail::TimestampRecycler::operator()(Timestamp* timestamp) const noexcept {
  TimestampCache* cache = cached_timestamps;
  if (cache != nullptr && cache->size() < kCachedTimestamps) {
    cache->push_back(timestamp);
  } else {
    delete timestamp;
  }
}

ClockTable::~ClockTable() {
  for (const std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_acquire);
}

void ClockTable::set(std::uint64_t index, StreamClock* clock) {
  std::atomic<Page*>& place = pages_[index / kPageSize];
  Page* page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    page = new Page{};
    place.store(page, std::memory_order_release);
  }
  (*page)[index % kPageSize].store(clock, std::memory_order_release);
}

ClockRegistry::ClockRegistry() { set_device_synchronizer(synchronize_device_clocks); }

ClockRegistry& ClockRegistry::instance() {
  static auto& registry = *new ClockRegistry();
  return registry;
}

StreamClock& ClockRegistry::make(const Stream& stream) {
  Streams& streams = devices_.get(stream.native().device,
                                  [](int) { return std::make_unique<Streams>().release(); });
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = stream.id();
  const bool is_overflow = id >= ClockTable::kSize;
  if (is_overflow) {
    const auto known = streams.overflow.find(id);
    if (known != streams.overflow.end()) return *known->second;
  } else if (StreamClock* known = streams.by_id.get(id)) {
    return *known;
  }
  std::unique_ptr<StreamClock> made(new StreamClock(stream, next_slot_));
  if (next_slot_ < ClockTable::kSize) slots_.set(next_slot_, made.get());
  streams.all.reserve(streams.all.size() + 1);
  if (is_overflow) {
    streams.overflow.emplace(id, made.get());
  } else {
    streams.by_id.set(id, made.get());
  }
  GANTRY_ASSERT(
      made->slot() == next_slot_ && made->id() == id && made->device() == stream.native().device,
      "the clock of a stream is that of another one");
  ++next_slot_;
  streams.all.push_back(made.get());
  return *made.release();
}

StreamClock* ClockRegistry::find_in_overflow(const Streams& streams, std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto known = streams.overflow.find(id);
  return known == streams.overflow.end() ? nullptr : known->second;
}

void ClockRegistry::verify() const {
  for (int device = 0; device < devices_.size(); ++device) {
    const std::vector<StreamClock*> clocks = clocks_of(device);
    for (StreamClock* const clock : clocks) {
      GANTRY_ASSERT(clock->device() == device, "a device has a stream of another one");
      GANTRY_ASSERT(find(device, clock->id()) == clock, "two clocks are of one stream");
      GANTRY_ASSERT(clock->slot() >= ClockTable::kSize || at(clock->slot()) == clock,
                    "two clocks have one slot");
      clock->verify();
    }
  }
  const std::lock_guard lock(mutex_);
  [[maybe_unused]] std::size_t count = 0;
  for (int device = 0; device < devices_.size(); ++device) {
    const Streams* streams = devices_.find(device);
    if (streams != nullptr) count += streams->all.size();
  }
  GANTRY_ASSERT(count == next_slot_, "a slot has no clock");
}

std::vector<StreamClock*> ClockRegistry::clocks_of(int device) const {
  const Streams* streams = devices_.find(device);
  if (streams == nullptr) return {};
  const std::lock_guard lock(mutex_);
  return streams->all;
}

}  // namespace gantry
