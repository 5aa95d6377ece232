#include "memory/ipc/peer_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "streams/per_device.hpp"

namespace gantry::memory {

PeerFaults& PeerFaults::of(int device) {
  static auto& faults = *new PerDevice<PeerFaults>();
  return faults.get(device, [](int index) {
    std::unique_ptr<PeerFaults> made(new PeerFaults(index));
    add_fault_source(*made);
    return made.release();  // registered until the process ends
  });
}

void PeerFaults::add(const ProcessStamp& process) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(unraised_, process) != unraised_.end()) return;
  unraised_.push_back(process);
  has_fault_.store(true, std::memory_order_release);
}

void PeerFaults::raise_fault() {
  ProcessStamp process;
  {
    const std::lock_guard lock(mutex_);
    if (unraised_.empty()) return;
    process = unraised_.front();
    unraised_.pop_front();
    has_fault_.store(!unraised_.empty(), std::memory_order_release);
  }
  throw PeerLostError(fmt::format("import_ipc: exporter process {} died before its pending writes "
                                  "completed; contents are undefined",
                                  process.pid),
                      -1, Device::cuda(device_).str());
}

}  // namespace gantry::memory
