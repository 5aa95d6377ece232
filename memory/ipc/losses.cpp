#include "memory/ipc/losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "streams/per_device.hpp"

namespace gantry::memory {

IpcLosses& IpcLosses::of(int device) {
  static auto& losses = *new PerDevice<IpcLosses>();
  return losses.get(device, [](int index) {
    std::unique_ptr<IpcLosses> made(new IpcLosses(index));
    add_fault_source(*made);
    return made.release();  // kept, and asked, until the process ends
  });
}

void IpcLosses::add(const ProcessStamp& process) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(lost_, process) != lost_.end()) return;
  lost_.push_back(process);
  has_fault_.store(true, std::memory_order_release);
}

void IpcLosses::raise_fault() {
  ProcessStamp process;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) return;
    process = lost_.front();
    lost_.pop_front();
    has_fault_.store(!lost_.empty(), std::memory_order_release);
  }
  throw PeerLostError(
      fmt::format("import_ipc: memory of process {} was imported before its work on it was done, "
                  "and that process is gone; the content is undefined",
                  process.pid),
      -1, Device::cuda(device_).str());
}

}  // namespace gantry::memory
