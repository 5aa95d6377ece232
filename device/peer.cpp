#include <gantry/device/peer.hpp>

#include <fmt/format.h>

#include <functional>
#include <mutex>
#include <ostream>
#include <set>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/callbacks.hpp"
#include "device/checked_device_index.hpp"
#include "device/peer_access.hpp"
#include "device/platform/platform.hpp"

namespace gantry {

namespace {

const PeerMatrix& cached_matrix() {
  static const PeerMatrix* const matrix = [] {
    Driver& active = driver();
    auto* made = new PeerMatrix;  // never destroyed: read until the process ends
    made->count = device_count();
    for (int from = 0; from < made->count; ++from) {
      for (int to = 0; to < made->count; ++to) {
        made->access.push_back(from == to || active.can_access_peer(from, to));
      }
    }
    return made;
  }();
  return *matrix;
}

// The pairs that enable_peer_access was called for.
struct EnabledPeers {
  std::mutex turn;  ///< held over a whole call; taken before `mutex`
  std::mutex mutex;
  std::set<std::pair<int, int>> pairs;
  std::set<std::pair<int, int>> complete;  ///< those that every listener has acted on
  Callbacks<std::function<void(int, int)>> listeners;
};

EnabledPeers& enabled_peers() {
  static auto& instance = *new EnabledPeers();
  return instance;
}

}  // namespace

bool can_access_peer(Device from, Device to) {
  const int source = checked_device_index(from, "can_access_peer");
  const int target = checked_device_index(to, "can_access_peer");
  return cached_matrix().can_access(source, target);
}

void enable_peer_access(Device from, Device to) {
  const int source = checked_device_index(from, "enable_peer_access");
  const int target = checked_device_index(to, "enable_peer_access");
  if (source == target) return;
  if (!cached_matrix().can_access(source, target)) {
    throw NotSupported(
        fmt::format("enable_peer_access: cuda:{} has no peer access to cuda:{}", source, target),
        Device::cuda(source).str());
  }
  EnabledPeers& enabled = enabled_peers();
  {
    const std::lock_guard lock(enabled.mutex);
    if (enabled.complete.contains({source, target})) return;
  }
  driver().enable_peer_access(source, target);
  // One caller at a time: the second one may use the access only after the listeners acted on it.
  const std::lock_guard turn(enabled.turn);
  {
    const std::lock_guard lock(enabled.mutex);
    if (!enabled.pairs.emplace(source, target).second) return;
  }
  try {
    enabled.listeners.for_each([&](const auto& listener) { listener(source, target); });
  } catch (...) {
    const std::lock_guard lock(enabled.mutex);
    enabled.pairs.erase({source, target});
    throw;
  }
  const std::lock_guard lock(enabled.mutex);
  enabled.complete.emplace(source, target);
}

std::vector<int> devices_with_access_to(int owner) {
  EnabledPeers& enabled = enabled_peers();
  const std::lock_guard lock(enabled.mutex);
  std::vector<int> devices;
  for (const auto& [from, to] : enabled.pairs) {
    if (to == owner) devices.push_back(from);
  }
  return devices;
}

void on_peer_access(std::function<void(int from, int to)> listener) {
  enabled_peers().listeners.add(std::move(listener));
}

PeerMatrix peer_matrix() {
  if (device_count() == 0) return {};
  return cached_matrix();
}

std::ostream& operator<<(std::ostream& out, const PeerMatrix& matrix) {
  out << fmt::format("{:8}", "");
  for (int to = 0; to < matrix.count; ++to) out << fmt::format("{:>8}", Device::cuda(to).str());
  for (int from = 0; from < matrix.count; ++from) {
    out << fmt::format("\n{:<8}", Device::cuda(from).str());
    for (int to = 0; to < matrix.count; ++to) {
      out << fmt::format("{:>8}", from == to ? "self" : matrix.can_access(from, to) ? "yes" : "no");
    }
  }
  return out << '\n';
}

}  // namespace gantry
