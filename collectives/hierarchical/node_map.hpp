#pragma once

#include <span>
#include <string>
#include <vector>

namespace gantry {

// The map between ranks and machines. Nodes are numbered in the order of their first ranks, and the
// ranks of a node in rank order.
class NodeMap {
 public:
  // `machines` has the name of every rank's machine.
  explicit NodeMap(std::span<const std::string> machines);

  int ranks() const { return static_cast<int>(place_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)].node; }
  // A rank's index among the ranks of its node.
  int index_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)].index; }
  int rank_at(int node, int index) const {
    return members_[static_cast<std::size_t>(node)][static_cast<std::size_t>(index)];
  }
  // The ranks of a node.
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  // The ranks with this index, one per node. Precondition: is_even().
  std::vector<int> column(int index) const;

  // True if every node has the same number of ranks.
  bool is_even() const;
  // Ranks of a node. Precondition: is_even().
  int width() const { return static_cast<int>(members_.front().size()); }
  // True if there are several nodes, each with the same number of ranks, more than one.
  bool is_hierarchical() const { return nodes() > 1 && is_even() && width() > 1; }

 private:
  struct Place {
    int node = 0;
    int index = 0;
  };

  std::vector<Place> place_of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace gantry
