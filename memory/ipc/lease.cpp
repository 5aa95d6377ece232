#include "memory/ipc/lease.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "memory/ipc/deferred_releases.hpp"
#include "memory/ipc/exporter.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {
namespace {

std::atomic<std::size_t>& leases(int device) {
  static auto& counts = *new PerDevice<std::atomic<std::size_t>>();
  return counts.get(device, [](int) { return new std::atomic<std::size_t>(0); });
}

}  // namespace

ImportLease::ImportLease(std::uint32_t slot, Block block, int device)
    : slot_(slot), device_(device), own_(block) {
  ++leases(device_);
}

ImportLease::ImportLease(std::uint32_t slot, std::shared_ptr<IpcPeer> peer, int device)
    : slot_(slot), device_(device), peer_(std::move(peer)) {
  ++leases(device_);
}

std::size_t ImportLease::count(int device) { return leases(device); }

void ImportLease::add_stream(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(streams_, &clock) != streams_.end()) return;
    streams_.push_back(&clock);
  }
  // The allocator of a local block orders its reuse behind the recorded streams.
  if (peer_ == nullptr) own_.allocator->record_stream(own_, stream);
}

ImportLease::~ImportLease() {
  if (in_bad_fork()) return;
  --leases(device_);
  try {
    add_stream(Stream::current(Device::cuda(device_)));
    if (extent_ != nullptr) {
      DeferredReleases::instance().submit(extent_, peer_, slot_, streams_);
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
