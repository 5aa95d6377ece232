#include "streams/clock_registry.hpp"

#include <memory>

#include "device/synchronizer.hpp"

namespace gantry {
namespace {

constexpr std::size_t kCachedMarks = 32;

// Note [Mark cache]
// Events come and go in one thread mostly, so each thread keeps the marks of its dead events. The
// table outlives its owner as a null pointer, because destructors of other thread-local and static
// objects may still destroy events.
using MarkCache = std::vector<ClockMark*>;
thread_local MarkCache* cached_marks = nullptr;
thread_local bool is_cache_gone = false;

struct MarkCacheOwner {
  ~MarkCacheOwner() {
    is_cache_gone = true;
    if (cached_marks == nullptr) return;
    for (ClockMark* mark : *cached_marks) delete mark;
    delete cached_marks;
    cached_marks = nullptr;
  }
};

MarkCache* own_cache() {
  if (cached_marks != nullptr || is_cache_gone) return cached_marks;
  thread_local MarkCacheOwner owner;
  static_cast<void>(owner);
  auto made = std::make_unique<MarkCache>();
  made->reserve(kCachedMarks);
  cached_marks = made.release();
  return cached_marks;
}

}  // namespace

std::unique_ptr<ClockMark, ClockMarkReturn> borrow_mark() {
  MarkCache* cache = own_cache();
  if (cache == nullptr || cache->empty()) {
    return std::unique_ptr<ClockMark, ClockMarkReturn>(new ClockMark);
  }
  std::unique_ptr<ClockMark, ClockMarkReturn> mark(cache->back());
  cache->pop_back();
  mark->clock = nullptr;
  return mark;
}

void ClockMarkReturn::operator()(ClockMark* mark) const noexcept {
  MarkCache* cache = cached_marks;
  if (cache != nullptr && cache->size() < kCachedMarks) {
    cache->push_back(mark);
  } else {
    delete mark;
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
  const bool is_late = id >= ClockTable::kSize;
  if (is_late) {
    const auto known = streams.late.find(id);
    if (known != streams.late.end()) return *known->second;
  } else if (StreamClock* known = streams.by_id.get(id)) {
    return *known;
  }
  std::unique_ptr<StreamClock> made(new StreamClock(stream, next_slot_));
  if (next_slot_ < ClockTable::kSize) slots_.set(next_slot_, made.get());
  streams.all.reserve(streams.all.size() + 1);
  if (is_late) {
    streams.late.emplace(id, made.get());
  } else {
    streams.by_id.set(id, made.get());
  }
  ++next_slot_;
  streams.all.push_back(made.get());
  return *made.release();
}

StreamClock* ClockRegistry::find_late(const Streams& streams, std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto known = streams.late.find(id);
  return known == streams.late.end() ? nullptr : known->second;
}

std::vector<StreamClock*> ClockRegistry::clocks_of(int device) const {
  const Streams* streams = devices_.find(device);
  if (streams == nullptr) return {};
  const std::lock_guard lock(mutex_);
  return streams->all;
}

}  // namespace gantry
