#include <gantry/streams/sync_debug.hpp>

#include <fmt/format.h>

#include <exception>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

void set_sync_debug_mode(SyncDebug mode) {
  switch (mode) {
    case SyncDebug::off:
      return set_host_blocking(HostBlocking::allowed);
    case SyncDebug::warn:
      return set_host_blocking(HostBlocking::warned);
    case SyncDebug::error:
      return set_host_blocking(HostBlocking::refused);
  }
  throw InvalidArgument(fmt::format("set_sync_debug_mode: expected off, warn or error, but got {}",
                                    static_cast<int>(mode)));
}

SyncDebug sync_debug_mode() {
  switch (host_blocking()) {
    case HostBlocking::warned:
      return SyncDebug::warn;
    case HostBlocking::refused:
      return SyncDebug::error;
    case HostBlocking::allowed:
      break;
  }
  return SyncDebug::off;
}

SyncDebugGuard::SyncDebugGuard(SyncDebug mode) : before_(sync_debug_mode()) {
  set_sync_debug_mode(mode);
}

SyncDebugGuard::~SyncDebugGuard() {
  try {
    set_sync_debug_mode(before_);
  } catch (const std::exception& error) {
    logging::error(fmt::format("restoring the sync debug mode: {}", error.what()));
  }
}

}  // namespace gantry
