#include "collectives/peers/reach.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include <gantry/core/log.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>

#include "machine/nvml/loaded_nvml.hpp"

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

namespace {

machine::NvmlResult<bool> has_nvlink(const machine::Nvml& nvml, const std::string& from,
                                     const std::string& to) {
  const auto first = nvml.device_by_uuid(from);
  if (!first) return {std::nullopt, first.problem};
  const auto second = nvml.device_by_uuid(to);
  if (!second) return {std::nullopt, second.problem};
  return nvml.has_nvlink(*first, *second);
}

}  // namespace

bool keeps_line_order(int device, int peer) {
  if (device == peer) return true;
  if (!driver().has_peer_atomics(device, peer)) return false;
  if (platform() != Platform::cuda) return true;
  const auto found =
      has_nvlink(machine::loaded_nvml(), device_properties(Device::cuda(device)).uuid,
                 device_properties(Device::cuda(peer)).uuid);
  if (!found && logging::enabled(logging::Level::info)) {
    logging::info(fmt::format(
        "collectives: ll128 is not used, since NVML does not tell whether an NVLink joins cuda:{} "
        "and cuda:{}: {}",
        device, peer, found.problem));
  }
  return found.value_or(false);
}

}  // namespace gantry
