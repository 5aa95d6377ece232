#include "streams/stream_pool.hpp"

#include "core/assert.hpp"
#include "device/drivers/stream_names.hpp"
#include "streams/per_device.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

namespace {

PerDevice<StreamPool>& pools() {
  static auto& instance = *new PerDevice<StreamPool>();
  return instance;
}

// A driver names a stream in an error, whatever the caller holds: it waits for no lock.
std::optional<std::uint64_t> number_in_errors(NativeStream stream) noexcept {
  StreamPool* const pool = pools().find(stream.device);
  return pool == nullptr ? std::nullopt : pool->known_id(stream.handle);
}

}  // namespace

StreamPool& StreamPool::of(int device) {
  return pools().get(device, [](int index) {
    auto* const made = new StreamPool(index);
    set_stream_numbering(number_in_errors);
    return made;
  });
}

std::optional<std::uint64_t> StreamPool::known_id(void* handle) noexcept {
  if (is_per_thread(handle)) return std::nullopt;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  const auto known = identities_.find(handle);
  if (known == identities_.end()) return std::nullopt;
  return known->second.identity.id;
}

StreamPool::Entry StreamPool::next(StreamPriority priority) {
  Priority& of_priority = priorities_[static_cast<std::size_t>(priority)];
  const int index = static_cast<int>(of_priority.turn.fetch_add(1, std::memory_order_relaxed) %
                                     kStreamsPerPriority);
  std::atomic<void*>& slot = of_priority.handles[static_cast<std::size_t>(index)];
  void* handle = slot.load(std::memory_order_acquire);
  if (handle == nullptr) {
    fill();
    handle = slot.load(std::memory_order_acquire);
  }
  GANTRY_ASSERT(handle != nullptr, "a full pool lacks a stream");
  return {{device_, handle}, {id_of(priority, index), priority}};
}

StreamPool::Entry StreamPool::companion_of_default() {
  void* handle = companion_of_default_.load(std::memory_order_acquire);
  if (handle == nullptr) {
    fill();
    handle = companion_of_default_.load(std::memory_order_acquire);
  }
  return {{device_, handle}, {kCompanionOfDefault, StreamPriority::normal}};
}

// Makes what is missing.
void StreamPool::fill() {
  const std::lock_guard lock(mutex_);
  const Driver::PriorityRange range = driver().priority_range(device_);
  make(companion_of_default_, {kCompanionOfDefault, StreamPriority::normal}, range.least);
  for (const StreamPriority priority : {StreamPriority::normal, StreamPriority::high}) {
    Priority& of_priority = priorities_[static_cast<std::size_t>(priority)];
    for (int index = 0; index < kStreamsPerPriority; ++index) {
      make(of_priority.handles[static_cast<std::size_t>(index)], {id_of(priority, index), priority},
           priority == StreamPriority::high ? range.greatest : range.least);
    }
  }
}

void StreamPool::make(std::atomic<void*>& slot, Identity identity, int priority) {
  if (slot.load(std::memory_order_relaxed) != nullptr) return;
  const NativeStream made = driver().create_stream(device_, priority);
  GANTRY_ASSERT(owns(identity.id), "a pool makes a stream with the id of a foreign one");
  Known& known = identities_[made.handle];
  GANTRY_ASSERT(known.identity.id == 0 || !owns(known.identity.id),
                "two streams of a pool have one handle");
  // The handle of a foreign stream that was destroyed.
  if (known.identity.id != 0) retire(known.identity);
  known = Known{identity};
  slot.store(made.handle, std::memory_order_release);
}

// Another stream has the handle now.
void StreamPool::retire(const Identity& identity) {
  if (StreamClock* clock = StreamClock::find(device_, identity.id)) clock->invalidate();
}

StreamPool::Identity StreamPool::identify(void* handle) {
  if (handle == nullptr) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto known = identities_.find(handle);
    if (known != identities_.end() && owns(known->second.identity.id)) {
      return known->second.identity;
    }
  }
  const std::uint64_t native = driver().stream_identity({device_, handle});
  const std::lock_guard lock(mutex_);
  if (is_per_thread(handle)) {
    const auto [entry, is_new] = per_thread_.try_emplace(native, Identity{next_external_id_});
    if (is_new) ++next_external_id_;
    return entry->second;
  }
  const auto [entry, is_new] = identities_.try_emplace(handle);
  Known& known = entry->second;
  if (!is_new && known.native == native) return known.identity;
  GANTRY_ASSERT(!owns(next_external_id_), "a foreign stream gets the id of one of the pool");
  if (!is_new) retire(known.identity);
  known = {{next_external_id_++, StreamPriority::normal}, native};
  return known.identity;
}

}  // namespace gantry
