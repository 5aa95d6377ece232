#include "collectives/hierarchical/node_map.hpp"

#include <algorithm>
#include <map>

namespace gantry {

NodeMap::NodeMap(std::span<const std::string> machines) {
  std::map<std::string, int> known;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [found, is_new] = known.emplace(machines[rank], nodes());
    if (is_new) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(found->second)];
    place_of_.push_back({found->second, static_cast<int>(members.size())});
    members.push_back(static_cast<int>(rank));
  }
}

std::vector<int> NodeMap::column(int index) const {
  std::vector<int> ranks;
  for (int node = 0; node < nodes(); ++node) ranks.push_back(rank_at(node, index));
  return ranks;
}

bool NodeMap::is_even() const {
  return std::all_of(members_.begin(), members_.end(), [&](const std::vector<int>& members) {
    return members.size() == members_.front().size();
  });
}

}  // namespace gantry
