#include "collectives/peer_reach.hpp"

#include <array>
#include <atomic>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

namespace {

constexpr int kCachedDevices = 64;
enum class Reach : signed char { unknown, no, yes };

}  // namespace

bool reaches(Device from, Device to) {
  if (from == to) return true;
  static std::array<std::atomic<Reach>, kCachedDevices * kCachedDevices> cache{};
  const bool cached = from.index < kCachedDevices && to.index < kCachedDevices;
  std::atomic<Reach>* const entry =
      cached ? &cache[static_cast<std::size_t>(from.index * kCachedDevices + to.index)] : nullptr;
  if (entry != nullptr && entry->load(std::memory_order_acquire) != Reach::unknown) {
    return entry->load(std::memory_order_relaxed) == Reach::yes;
  }
  const bool can = can_access_peer(from, to);
  if (can) enable_peer_access(from, to);
  if (entry != nullptr) entry->store(can ? Reach::yes : Reach::no, std::memory_order_release);
  return can;
}

void order_after(Device waiting, Device on) {
  if (waiting == on) return;
  Stream::current(waiting).wait(Stream::current(on));
}

void order_all(std::span<const Device> devices) {
  std::vector<Event> reached;
  reached.reserve(devices.size());
  for (const Device device : devices) reached.push_back(Stream::current(device).record());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Stream stream = Stream::current(devices[i]);
    for (std::size_t j = 0; j < devices.size(); ++j) {
      if (devices[i] != devices[j]) stream.wait(reached[j]);
    }
  }
}

}  // namespace gantry
