#include "core/text/nearest_name.hpp"

#include <algorithm>
#include <cstddef>

namespace gantry {
namespace {

// Characters that a prefix must have to stand for a longer name: "--" and two more.
constexpr std::size_t kLeastPrefix = 4;

bool is_same(char a, char b) {
  const auto plain = [](char c) { return c == '_' ? '-' : c; };
  return plain(a) == plain(b);
}

// The distance of optimal string alignment.
std::size_t distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cost((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return cost[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (is_same(a[i - 1], b[j - 1]) ? 0 : 1);
      at(i, j) = std::min({replaced, at(i - 1, j) + 1, at(i, j - 1) + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view typed,
                                        const std::vector<std::string>& names) {
  std::optional<std::string> nearest;
  std::size_t least = typed.size() / 3 + 1;
  for (const std::string& name : names) {
    const std::size_t cost = distance(typed, name);
    if (cost >= least) continue;
    least = cost;
    nearest = name;
  }
  if (nearest || typed.size() < kLeastPrefix) return nearest;
  const auto longer = std::find_if(
      names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(typed); });
  if (longer != names.end()) nearest = *longer;
  return nearest;
}

}  // namespace gantry
