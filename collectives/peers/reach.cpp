#include "collectives/peers/reach.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include <gantry/device/peer.hpp>

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

bool reaches(Device from, const Tensor& tensor) {
  const Device to = tensor.device();
  return from == to || (reaches(from, to) && tensor.storage().is_peer_accessible());
}

bool are_open_to_peers(std::span<const Tensor> tensors) {
  return std::ranges::all_of(
      tensors, [](const Tensor& tensor) { return tensor.storage().is_peer_accessible(); });
}

}  // namespace gantry
