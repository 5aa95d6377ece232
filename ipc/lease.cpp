#include "ipc/lease.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>

#include "core/assert.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "ipc/completion_queue.hpp"
#include "ipc/exporter.hpp"
#include "memory/blocks/heap_block.hpp"
#include "streams/event_pool.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {
namespace {

struct LeaseCounts {
  std::atomic<std::size_t> leases{0};
  std::atomic<std::size_t> pending{0};  // releases
};

LeaseCounts& counts_of(int device) {
  static auto& counts = *new PerDevice<LeaseCounts>();
  return counts.get(device, [](int) { return new LeaseCounts(); });
}

// The longest interval is long: a release may wait for a destroyed stream as long as the process
// runs.
CompletionQueue& pending_releases() {
  static auto& queue = *new CompletionQueue("gantry-ipc-free", std::chrono::milliseconds(100));
  return queue;
}

// The end of a lease of another process's block.
class Release final : public Completion {
 public:
  Release(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer, std::uint32_t slot,
          const std::vector<StreamClock*>& streams)
      : extent_(std::move(extent)),
        peer_(std::move(peer)),
        slot_(slot),
        counts_(counts_of(extent_->device())) {
    destroyed_streams_.reserve(streams.size());
    for (StreamClock* stream : streams) wait_for(*stream);
    ++counts_.pending;
  }
  ~Release() override {
    [[maybe_unused]] const std::size_t before = counts_.pending.fetch_sub(1);
    GANTRY_ASSERT(before > 0, "more releases end than began");
  }

  bool is_complete() override {
    return std::ranges::all_of(events_,
                               [](const auto& one) { return driver().event_reached(one.get()); }) &&
           std::ranges::all_of(destroyed_streams_, [](const StreamUse& use) {
             return use.sequence <= use.clock->completed();
           });
  }
  void perform() noexcept override {
    GANTRY_ASSERT(extent_ != nullptr, "a lease is released twice");
    extent_.reset();
    peer_->release(slot_);
  }

 private:
  void wait_for(StreamClock& clock) noexcept {
    const NativeStream stream = clock.native();
    try {
      if (clock.is_external() && !clock.may_submit()) return wait_for_device(clock);
      // The program orders graph launches itself: nothing recorded here covers a later launch.
      if (driver().is_capturing(stream)) return;
      std::list<PooledEvent> recorded;
      recorded.emplace_back(stream.device);
      driver().record_event(recorded.back().get(), stream);
      // Another thread may have begun a capture, which a look at its event would spoil.
      if (driver().is_capturing(stream)) return;
      events_.splice(events_.end(), recorded);
    } catch (...) {
      if (clock.is_external()) return wait_for_device(clock);
      try {
        const BlockingIsNeeded needed;
        if (!driver().is_capturing(stream)) driver().synchronize_stream(stream);
      } catch (...) {
        // The stream has failed: its work has ended.
      }
    }
  }
  void wait_for_device(StreamClock& clock) noexcept {
    destroyed_streams_.push_back({&clock, clock.next_sequence()});  // has room
  }

  std::shared_ptr<ImportedExtent> extent_;
  std::shared_ptr<IpcPeer> peer_;
  const std::uint32_t slot_;
  LeaseCounts& counts_;
  std::list<PooledEvent> events_;
  std::vector<StreamUse> destroyed_streams_;
};

}  // namespace

ImportLease::ImportLease(std::uint32_t slot, Block block, int device)
    : slot_(slot), device_(device), own_(block) {
  ++counts_of(device_).leases;
}

ImportLease::ImportLease(std::uint32_t slot, std::shared_ptr<IpcPeer> peer, int device)
    : slot_(slot), device_(device), peer_(std::move(peer)) {
  ++counts_of(device_).leases;
}

std::size_t ImportLease::count(int device) { return counts_of(device).leases; }

std::size_t ImportLease::count_pending(int device) { return counts_of(device).pending; }

void ImportLease::release_completed() noexcept { pending_releases().run_completed(); }

void ImportLease::add_stream(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(streams_, &clock) != streams_.end()) return;
    streams_.push_back(&clock);
  }
  // The allocator of a local block orders its reuse behind the recorded streams.
  GANTRY_ASSERT(peer_ != nullptr || own_.allocator != nullptr, "a lease is of no block");
  if (peer_ == nullptr) own_.allocator->record_stream(own_, stream);
}

ImportLease::~ImportLease() {
  if (in_bad_fork()) return;
  [[maybe_unused]] const std::size_t before = counts_of(device_).leases.fetch_sub(1);
  GANTRY_ASSERT(before > 0, "more leases end than began");
  try {
    add_stream(Stream::current(Device::cuda(device_)));
    if (extent_ != nullptr) {
      GANTRY_ASSERT(peer_ != nullptr, "an own block is mapped as that of another process");
      pending_releases().start();
      CompletionQueue::Entries entries;
      entries.push_back(std::make_unique<Release>(extent_, peer_, slot_, streams_));
      extent_.reset();  // the release unmaps it
      pending_releases().add(std::move(entries));
      return;
    }
  } catch (...) {
    // Out of host memory, or the platform is shutting down: release at once.
  }
  extent_.reset();
  if (peer_ != nullptr) {
    peer_->release(slot_);
  } else {
    IpcExporter::instance().release_local_reference(slot_);
  }
}

}  // namespace gantry::memory
