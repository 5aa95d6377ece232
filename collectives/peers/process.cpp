#include "collectives/peers/process.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace gantry {

std::shared_ptr<const PeerProcess> share_peer(const ProcessStamp& process) {
  using Key = std::pair<std::int32_t, std::uint64_t>;
  struct Known {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<const PeerProcess>> peers;
  };
  static auto* const known = new Known;  // never destroyed: groups may end after static objects
  const std::lock_guard lock(known->mutex);
  std::erase_if(known->peers, [](const auto& entry) { return entry.second.expired(); });
  auto& place = known->peers[{process.pid, process.start_time}];
  std::shared_ptr<const PeerProcess> peer = place.lock();
  if (!peer) place = peer = std::make_shared<const PeerProcess>(process);
  return peer;
}

}  // namespace gantry
