#include "collectives/host/staging.hpp"

#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "device/sync_debug_driver.hpp"

namespace gantry {

HostStaging::HostStaging(std::size_t bytes) : bytes_(bytes), memory_(memory::pinned(2 * bytes)) {}

HostStaging::~HostStaging() {
  if (!was_used_ || memory_.data() == nullptr) return;
  try {
    const BlockingIsNeeded needed;
    done_.synchronize();
  } catch (...) {
    // A device in error no longer copies.
  }
}

void HostStaging::begin(const Stream& stream) {
  if (was_used_) done_.wait(stream);
}

void HostStaging::fetch(std::size_t offset, const void* from, std::size_t bytes,
                        const Stream& stream) {
  if (bytes > 0) driver().copy(outbound() + offset, from, bytes, stream.native());
}

void HostStaging::fetched(const Stream& stream) { fetched_.record(stream); }

void HostStaging::await() { fetched_.synchronize(); }

void HostStaging::deliver(void* to, const std::byte* from, std::size_t bytes,
                          const Stream& stream) {
  if (bytes > 0) driver().copy(to, from, bytes, stream.native());
}

void HostStaging::finish(const Stream& stream) {
  done_.record(stream);
  was_used_ = true;
}

}  // namespace gantry
