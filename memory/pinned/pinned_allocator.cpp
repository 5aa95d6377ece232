#include <gantry/memory/pinned_allocator.hpp>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/host_stats.hpp>

#include "device/own_placement.hpp"
#include "memory/pinned/pinned_heap.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::memory {
namespace {

class PinnedAllocator final : public Allocator {
 public:
  PinnedAllocator() : heap_(device_nodes()) {}

  [[nodiscard]] Block allocate(const Stream& /*stream*/, std::size_t bytes,
                               std::size_t alignment) override {
    return allocate(bytes, alignment);
  }
  [[nodiscard]] Block allocate(std::size_t bytes, std::size_t alignment) {
    check_alignment(alignment);
    // A hit asks the driver nothing, so it would not notice; driver() throws.
    if (in_bad_fork()) static_cast<void>(driver());
    Block block{.bytes = bytes, .device = Device::cpu()};
    if (bytes == 0) return block;
    HeapBlock& made = heap_.allocate(bytes, alignment);
    if (sanitizer::is_on()) sanitizer::memory_allocated(made.data, bytes);
    block.data = made.data;
    block.allocator = this;
    block.handle = &made;
    return block;
  }
  void deallocate(Block& block) noexcept override {
    if (block.handle != nullptr && !in_bad_fork()) {
      if (sanitizer::is_on()) sanitizer::memory_freed(block.data, block.bytes, nullptr);
      heap_.deallocate(*static_cast<HeapBlock*>(block.handle));
    }
    block = {};
  }
  void record_stream(const Block& block, const Stream& stream) override {
    record(block, stream, true);
  }
  void record_use(const Block& block, const Stream& stream) override {
    record(block, stream, false);
  }
  void empty_cache(Device /*device*/) override {
    if (!in_bad_fork()) heap_.empty_cache();
  }
  [[nodiscard]] std::string name() const override { return "pinned"; }

  [[nodiscard]] PinnedHeap& heap() { return heap_; }

 private:
  void record(const Block& block, const Stream& stream, bool until_free) {
    if (block.handle == nullptr || in_bad_fork()) return;
    heap_.record_use(*static_cast<HeapBlock*>(block.handle), stream, until_free);
    if (sanitizer::is_on()) sanitizer::memory_recorded(block.data, stream, until_free);
  }

  PinnedHeap heap_;
};

// Never destroyed: static destructors of the user's program may still free.
PinnedAllocator& instance() {
  static auto& allocator = *new PinnedAllocator();
  return allocator;
}

void add_times(std::map<std::string, std::int64_t>& map, const std::string& name,
               const HostTimes& times) {
  map[name + ".total"] = times.total;
  map[name + ".max"] = times.max;
  map[name + ".min"] = times.min;
  map[name + ".count"] = times.count;
  map[name + ".avg"] = times.avg();
}

}  // namespace

Allocator& pinned_allocator() { return instance(); }

Buffer pinned(std::size_t bytes, std::size_t alignment) {
  return Buffer(instance().allocate(bytes, alignment));
}

bool is_pinned(const void* data) {
  if (data == nullptr || !is_initialized()) return false;
  return driver().pointer_info(data).kind == PointerKind::pinned;
}

HostStats host_memory_stats() { return instance().heap().stats(); }

std::map<std::string, std::int64_t> host_stats_map() {
  const HostStats stats = host_memory_stats();
  std::map<std::string, std::int64_t> map;
  for (const NamedHostStat& entry : kHostStats) {
    add(map, std::string(entry.name), stats.*entry.member);
  }
  add_times(map, "host_alloc_time", stats.host_alloc_time);
  add_times(map, "host_free_time", stats.host_free_time);
  map["num_host_alloc"] = stats.num_host_alloc;
  map["num_host_free"] = stats.num_host_free;
  return map;
}

void reset_peak_host_stats() { instance().heap().reset_peak_stats(); }

void reset_accumulated_host_stats() { instance().heap().reset_accumulated_stats(); }

}  // namespace gantry::memory
