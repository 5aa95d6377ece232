#include "tools/tune/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace gantry::tune {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// What all 64 blocks cost against one: enough to settle what noise would.
constexpr double kBlocksLoss = 0.01;

bool before(const Choice& a, const Choice& b) {
  return a.algorithm != b.algorithm ? a.algorithm < b.algorithm : a.blocks < b.blocks;
}

// Times by size and choice; kNever where a choice was not measured.
struct Grid {
  std::vector<std::int64_t> sizes;
  std::vector<Choice> choices;
  std::vector<std::vector<double>> us;  // [size][choice]
};

Grid arrange(const std::vector<Sample>& samples) {
  Grid grid;
  for (const Sample& sample : samples) {
    grid.sizes.push_back(sample.bytes);
    grid.choices.push_back(sample.choice);
  }
  std::sort(grid.sizes.begin(), grid.sizes.end());
  grid.sizes.erase(std::unique(grid.sizes.begin(), grid.sizes.end()), grid.sizes.end());
  std::sort(grid.choices.begin(), grid.choices.end(), before);
  grid.choices.erase(std::unique(grid.choices.begin(), grid.choices.end()), grid.choices.end());
  grid.us.assign(grid.sizes.size(), std::vector<double>(grid.choices.size(), kNever));
  for (const Sample& sample : samples) {
    const auto size = std::lower_bound(grid.sizes.begin(), grid.sizes.end(), sample.bytes);
    const auto choice =
        std::lower_bound(grid.choices.begin(), grid.choices.end(), sample.choice, before);
    double& us = grid.us[static_cast<std::size_t>(size - grid.sizes.begin())]
                        [static_cast<std::size_t>(choice - grid.choices.begin())];
    us = std::min(us, sample.us);
  }
  return grid;
}

// The index of the best choice for each size.
std::vector<std::size_t> best_path(const Grid& grid) {
  const std::size_t choices = grid.choices.size();
  std::vector<double> cost(choices, 0);
  std::vector<std::vector<std::size_t>> came_from;
  for (const std::vector<double>& us : grid.us) {
    const double best = *std::min_element(us.begin(), us.end());
    std::vector<double> next(choices, kNever);
    std::vector<std::size_t> from(choices, 0);
    for (std::size_t to = 0; to < choices; ++to) {
      for (std::size_t c = 0; c < choices; ++c) {
        if (grid.choices[c].algorithm > grid.choices[to].algorithm) continue;
        const bool change = c != to && !came_from.empty();
        const double reached = cost[c] + (change ? std::log(kHysteresis) : 0);
        if (c != to && came_from.empty()) continue;
        if (reached < next[to]) {
          next[to] = reached;
          from[to] = c;
        }
      }
      next[to] += us[to] == kNever ? kNever
                                   : std::log(us[to] / best) +
                                         kBlocksLoss * grid.choices[to].blocks / kMostTableBlocks;
    }
    cost = std::move(next);
    came_from.push_back(std::move(from));
  }
  std::vector<std::size_t> path(grid.sizes.size());
  path.back() = static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
  for (std::size_t i = grid.sizes.size() - 1; i > 0; --i) path[i - 1] = came_from[i][path[i]];
  return path;
}

}  // namespace

std::vector<SelectorRow> choose_rows(const std::vector<Sample>& samples) {
  if (samples.empty()) return {};
  const Grid grid = arrange(samples);
  const std::vector<std::size_t> path = best_path(grid);
  std::vector<SelectorRow> rows;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Choice& choice = grid.choices[path[i]];
    if (rows.empty() || rows.back().choice != choice) rows.push_back({0, choice});
    rows.back().up_to_bytes = grid.sizes[i];
  }
  // What carries every size, when the samples ended among small ones.
  const Choice last = rows.back().choice;
  if (last.algorithm == Algorithm::ll || last.algorithm == Algorithm::ll128) {
    rows.push_back({0, {Algorithm::one_shot, last.blocks}});
  }
  if (last.algorithm == Algorithm::ll128_two_shot) {
    rows.push_back({0, {Algorithm::two_shot, last.blocks}});
  }
  rows.back().up_to_bytes = INT64_MAX;
  return rows;
}

std::vector<SelectorRow> choose_registered_rows(const std::vector<Sample>& registered,
                                                const std::vector<Sample>& others) {
  std::vector<Sample> all = registered;
  for (Sample other : others) {
    other.choice = {Algorithm::automatic, 1};
    all.push_back(other);
  }
  std::vector<SelectorRow> rows = choose_rows(all);
  if (rows.size() == 1 && rows[0].choice.algorithm == Algorithm::automatic) rows.clear();
  return rows;
}

}  // namespace gantry::tune
