#include "machine/topology/gpu_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace gantry::machine {
namespace {

constexpr int kPerNvLink = 1000;
constexpr std::size_t kMaxExhaustive = 16;

const Topology::Gpu& gpu_at(const Topology& topology, int gpu) {
  return topology.gpus[static_cast<std::size_t>(gpu)];
}

const Topology::Link& link_at(const Topology& topology, int a, int b) {
  return topology.links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
}

int quality_of_path(PciPath path) {
  switch (path) {
    case PciPath::same:
      return 7;
    case PciPath::pix:
      return 6;
    case PciPath::pxb:
      return 5;
    case PciPath::host_bridge:
      return 4;
    case PciPath::node:
      return 3;
    case PciPath::system:
      return 2;
  }
  return 0;
}

std::size_t count_nodes(const Topology& topology, std::span<const int> gpus) {
  std::set<int> nodes;
  for (const int gpu : gpus) nodes.insert(gpu_at(topology, gpu).node.value.value_or(-1));
  return nodes.size();
}

using Rating = std::tuple<SetQuality, long, SetQuality>;

Rating rate(const Topology& topology, std::span<const int> chosen, std::span<const int> left) {
  return {quality(topology, chosen), -static_cast<long>(count_nodes(topology, chosen)),
          quality(topology, left)};
}

// Every set, in lexicographic order: the first of equal ones has the lowest bus ids.
std::vector<int> best_of_all_sets(const Topology& topology, const std::vector<int>& gpus,
                                  std::size_t count) {
  std::vector<bool> is_chosen(gpus.size(), false);
  std::fill_n(is_chosen.begin(), count, true);
  std::vector<int> best;
  std::optional<Rating> best_rating;
  do {
    std::vector<int> chosen;
    std::vector<int> left;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      (is_chosen[i] ? chosen : left).push_back(gpus[i]);
    }
    const Rating rating = rate(topology, chosen, left);
    if (best_rating && !(*best_rating < rating)) continue;
    best_rating = rating;
    best = std::move(chosen);
  } while (std::prev_permutation(is_chosen.begin(), is_chosen.end()));
  return best;
}

// Quality of the connections that one more GPU brings.
SetQuality added_quality(const Topology& topology, const std::vector<int>& chosen, int gpu) {
  SetQuality added{std::numeric_limits<int>::max(), 0};
  for (const int other : chosen) {
    const int pair = link_quality(link_at(topology, other, gpu));
    added.worst = std::min(added.worst, pair);
    added.sum += pair;
  }
  return added;
}

// From every first GPU on, always the one that keeps the set best.
std::vector<int> best_of_grown_sets(const Topology& topology, const std::vector<int>& gpus,
                                    std::size_t count) {
  std::vector<int> best;
  for (const int first : gpus) {
    std::vector<int> chosen{first};
    while (chosen.size() < count) {
      std::optional<std::pair<SetQuality, int>> next;
      for (const int gpu : gpus) {
        if (std::find(chosen.begin(), chosen.end(), gpu) != chosen.end()) continue;
        const SetQuality candidate = added_quality(topology, chosen, gpu);
        if (!next || next->first < candidate) next = {candidate, gpu};
      }
      chosen.push_back(next->second);
    }
    if (best.empty() || quality(topology, best) < quality(topology, chosen)) best = chosen;
  }
  return by_bus_id(topology, std::move(best));
}

// The cycle with the greatest sum that uses connections of at least `least`; empty if there is
// none. Held and Karp's dynamic programme over sets of GPUs.
std::vector<int> best_cycle(const std::vector<std::vector<int>>& weights, int least) {
  const std::size_t n = weights.size();
  const std::size_t sets = std::size_t{1} << n;
  constexpr int kNone = std::numeric_limits<int>::min();
  std::vector<int> sum(sets * n, kNone);
  std::vector<std::uint8_t> before(sets * n, 0);
  sum[1 * n + 0] = 0;
  for (std::size_t set = 1; set < sets; set += 2) {  // GPU 0 is in every set
    for (std::size_t last = 0; last < n; ++last) {
      const int so_far = sum[set * n + last];
      if (so_far == kNone) continue;
      for (std::size_t next = 1; next < n; ++next) {
        if ((set >> next & 1U) != 0 || weights[last][next] < least) continue;
        const std::size_t to = (set | std::size_t{1} << next) * n + next;
        if (so_far + weights[last][next] <= sum[to]) continue;
        sum[to] = so_far + weights[last][next];
        before[to] = static_cast<std::uint8_t>(last);
      }
    }
  }
  std::size_t set = sets - 1;
  std::optional<std::size_t> end;
  int best = kNone;
  for (std::size_t last = 1; last < n; ++last) {
    const int so_far = sum[set * n + last];
    if (so_far == kNone || weights[last][0] < least || so_far + weights[last][0] <= best) continue;
    best = so_far + weights[last][0];
    end = last;
  }
  if (!end) return {};
  std::vector<int> cycle;
  for (std::size_t at = *end; cycle.size() < n;) {
    cycle.push_back(static_cast<int>(at));
    const std::size_t previous = before[set * n + at];
    set &= ~(std::size_t{1} << at);
    at = previous;
  }
  std::reverse(cycle.begin(), cycle.end());
  // Both directions are equal; the lower second number wins.
  if (cycle[1] > cycle.back()) std::reverse(cycle.begin() + 1, cycle.end());
  return cycle;
}

}  // namespace

int link_quality(const Topology::Link& link) {
  if (link.nvlinks && *link.nvlinks > 0) return kPerNvLink * *link.nvlinks;
  const int path = link.path ? quality_of_path(*link.path) : 1;
  // Without peer access every byte goes through the host.
  return link.peer_access && !*link.peer_access ? path : 10 * path;
}

std::string link_text(const Topology::Link& link) {
  if (link.nvlinks && *link.nvlinks > 0) return fmt::format("NV{}", *link.nvlinks);
  // The PCI path of GPUs that may have NVLinks says nothing about their connection.
  if (!link.path || link.is_way_unknown()) return "?";
  return std::string(name(*link.path));
}

SetQuality quality(const Topology& topology, std::span<const int> gpus) {
  SetQuality result;
  bool is_first = true;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.size(); ++j) {
      const int pair = link_quality(link_at(topology, gpus[i], gpus[j]));
      result.worst = is_first ? pair : std::min(result.worst, pair);
      result.sum += pair;
      is_first = false;
    }
  }
  return result;
}

std::vector<int> by_bus_id(const Topology& topology, std::vector<int> gpus) {
  std::stable_sort(gpus.begin(), gpus.end(), [&](int a, int b) {
    const Topology::Gpu& first = gpu_at(topology, a);
    const Topology::Gpu& second = gpu_at(topology, b);
    return std::tie(first.bus_id, first.uuid) < std::tie(second.bus_id, second.uuid);
  });
  return gpus;
}

std::vector<int> best_connected(const Topology& topology, std::vector<int> gpus, int count) {
  gpus = by_bus_id(topology, std::move(gpus));
  const auto wanted = static_cast<std::size_t>(count);
  if (wanted >= gpus.size()) return gpus;
  return gpus.size() <= kMaxExhaustive ? best_of_all_sets(topology, gpus, wanted)
                                       : best_of_grown_sets(topology, gpus, wanted);
}

std::vector<int> ring_order(const Topology& topology, std::vector<int> gpus) {
  gpus = by_bus_id(topology, std::move(gpus));
  const std::size_t n = gpus.size();
  if (n < 4 || n > kMaxRing) return gpus;  // up to three are neighbours of each other anyway
  std::vector<std::vector<int>> weights(n, std::vector<int>(n, 0));
  std::set<int> distinct;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      weights[i][j] = std::min(link_quality(link_at(topology, gpus[i], gpus[j])),
                               link_quality(link_at(topology, gpus[j], gpus[i])));
      distinct.insert(weights[i][j]);
    }
  }
  // The greatest weight with which a cycle exists; with the least one every cycle does.
  std::vector<int> cycle;
  const std::vector<int> steps(distinct.begin(), distinct.end());
  std::size_t low = 0;
  for (std::size_t high = steps.size(); low < high;) {
    const std::size_t middle = (low + high) / 2;
    std::vector<int> found = best_cycle(weights, steps[middle]);
    if (found.empty()) {
      high = middle;
    } else {
      cycle = std::move(found);
      low = middle + 1;
    }
  }
  std::vector<int> ordered;
  for (const int at : cycle) ordered.push_back(gpus[static_cast<std::size_t>(at)]);
  return ordered;
}

}  // namespace gantry::machine
