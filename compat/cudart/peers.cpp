#include "compat/cudart/peers.hpp"

#include <mutex>
#include <set>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/device_facts.hpp"
#include "compat/cudart/next.hpp"

namespace gantry::cudart_api {

namespace {

// The pairs that the program has enabled. Access itself stays: gantry's collectives use it.
struct EnabledPairs {
  std::mutex mutex;
  std::set<std::pair<int, int>> pairs;

  static EnabledPairs& all() {
    static auto* const pairs = new EnabledPairs;
    return *pairs;
  }
};

void can_access_peer(int* place, int device, int peer) {
  expect_place(place);
  *place = checked_device(device) != checked_device(peer) && driver().can_access_peer(device, peer)
               ? 1
               : 0;
}

void enable_peer_access(int peer, unsigned flags) {
  const int device = driver().current_device();
  expect(flags == 0, cudaErrorInvalidValue, "expected flags 0");
  expect(checked_device(peer) != device, cudaErrorInvalidDevice, "a device is no peer of its own");
  EnabledPairs& enabled = EnabledPairs::all();
  const std::lock_guard lock(enabled.mutex);
  expect(!enabled.pairs.contains({device, peer}), cudaErrorPeerAccessAlreadyEnabled,
         "access is enabled already");
  driver().enable_peer_access(device, peer);
  enabled.pairs.emplace(device, peer);
}

void disable_peer_access(int peer) {
  const int device = driver().current_device();
  EnabledPairs& enabled = EnabledPairs::all();
  const std::lock_guard lock(enabled.mutex);
  expect(enabled.pairs.erase({device, checked_device(peer)}) == 1, cudaErrorPeerAccessNotEnabled,
         "access was not enabled");
}

void peer_attribute(int* place, cudaDeviceP2PAttr which, int from, int to) {
  expect_place(place);
  expect(checked_device(from) != checked_device(to), cudaErrorInvalidDevice,
         "a device is no peer of its own");
  *place = 0;
  if (which == cudaDevP2PAttrAccessSupported) *place = driver().can_access_peer(from, to) ? 1 : 0;
  if (which == cudaDevP2PAttrNativeAtomicSupported) {
    *place = driver().has_peer_atomics(from, to) ? 1 : 0;
  }
}

}  // namespace

bool reaches(int device, int peer) {
  if (device == peer) return true;
  EnabledPairs& enabled = EnabledPairs::all();
  const std::lock_guard lock(enabled.mutex);
  return enabled.pairs.contains({device, peer});
}

void reset_access(int device) {
  EnabledPairs& enabled = EnabledPairs::all();
  const std::lock_guard lock(enabled.mutex);
  std::erase_if(enabled.pairs, [device](const auto& pair) { return pair.first == device; });
}

GANTRY_CUDART_CALL(cudaDeviceCanAccessPeer, (int* place, int device, int peer),
                   (place, device, peer), can_access_peer)
GANTRY_CUDART_CALL(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags),
                   enable_peer_access)
GANTRY_CUDART_CALL(cudaDeviceDisablePeerAccess, (int peer), (peer), disable_peer_access)
GANTRY_CUDART_CALL(cudaDeviceGetP2PAttribute,
                   (int* place, cudaDeviceP2PAttr which, int from, int to),
                   (place, which, from, to), peer_attribute)

}  // namespace gantry::cudart_api
