#include "collectives/host/staging.hpp"

#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

HostStaging::HostStaging(std::size_t bytes) : bytes_(bytes), memory_(memory::pinned(2 * bytes)) {}

namespace {

void wait_for(const Event& event) noexcept {
  try {
    const BlockingIsNeeded needed;
    event.synchronize();
  } catch (...) {
    // A device in error no longer copies.
  }
}

// Copies; if that fails, `end` covers the copies before, which may be under way.
void copy_or_record(void* to, const void* from, std::size_t bytes, const Stream& stream,
                    Event& end) {
  try {
    driver().copy(to, from, bytes, stream.native());
  } catch (...) {
    try {
      end.record(stream);
    } catch (...) {
      // The stream takes no more work.
    }
    throw;
  }
}

}  // namespace

// A use that failed half-way may have fetches under way that no finish() covers.
HostStaging::~HostStaging() {
  if (memory_.data() == nullptr) return;
  wait_for(fetched_);
  wait_for(done_);
}

void HostStaging::begin(const Stream& stream) {
  if (was_used_) done_.wait(stream);
}

void HostStaging::fetch(std::size_t offset, const void* from, std::size_t bytes,
                        const Stream& stream) {
  if (bytes > 0) copy_or_record(outbound() + offset, from, bytes, stream, fetched_);
}

void HostStaging::fetched(const Stream& stream) { fetched_.record(stream); }

void HostStaging::await() { fetched_.synchronize(); }

void HostStaging::deliver(void* to, const std::byte* from, std::size_t bytes,
                          const Stream& stream) {
  if (bytes > 0) copy_or_record(to, from, bytes, stream, done_);
}

void HostStaging::finish(const Stream& stream) {
  done_.record(stream);
  was_used_ = true;
}

}  // namespace gantry
