#include "launcher/command/rank_list.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace gantry::launcher {

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i == 2 ? ", " : "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace gantry::launcher
