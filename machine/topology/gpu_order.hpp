// Choices of GPUs, and their order, by the links between them.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include <gantry/machine/topology.hpp>

namespace gantry::machine {

/// Quality of the connection of two GPUs: more is better. Unknown connections come last.
[[nodiscard]] int link_quality(const Topology::Link& link);
/// "NV18", "PIX", … or "?" if it is unknown.
[[nodiscard]] std::string link_text(const Topology::Link& link);

/// Quality of all connections within a set of GPUs.
struct SetQuality {
  int worst = 0;
  int sum = 0;
  friend auto operator<=>(const SetQuality&, const SetQuality&) = default;
};
[[nodiscard]] SetQuality quality(const Topology& topology, std::span<const int> gpus);

/// The GPUs in ascending order of bus id and UUID.
[[nodiscard]] std::vector<int> by_bus_id(const Topology& topology, std::vector<int> gpus);

/// The `count` GPUs with the best worst connection. Ties: the best sum, the fewest NUMA nodes, the
/// best connections among the GPUs that are left, the lowest bus ids.
[[nodiscard]] std::vector<int> best_connected(const Topology& topology, std::vector<int> gpus,
                                              int count);

/// Most GPUs that ring_order() orders.
inline constexpr std::size_t kMaxRing = 16;

/// The GPUs in a cycle whose worst connection is the best possible, then the sum. It begins at the
/// lowest bus id.
[[nodiscard]] std::vector<int> ring_order(const Topology& topology, std::vector<int> gpus);

}  // namespace gantry::machine
