#include "tools/top/columns.hpp"

#include <algorithm>
#include <utility>

namespace gantry::top {
namespace {

constexpr std::size_t kGap = 2;

struct Character {
  std::size_t bytes;
  std::size_t columns;
};

// The character at the front of `text`. All code points below the Hangul letters take one column;
// those above take two at most.
Character front_of(std::string_view text) {
  constexpr unsigned char kFirstWide = 0xe1;  // of U+1000 and above
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return {std::min(bytes, text.size()), first < kFirstWide ? std::size_t{1} : std::size_t{2}};
}

}  // namespace

std::size_t width_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character front = front_of(text);
    columns += front.columns;
    text.remove_prefix(front.bytes);
  }
  return columns;
}

std::string cut(std::string_view text, std::size_t columns) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const Character front = front_of(rest);
    if (front.columns > columns) break;
    columns -= front.columns;
    rest.remove_prefix(front.bytes);
  }
  return std::string(text.substr(0, text.size() - rest.size()));
}

Columns::Columns(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    is_right_.push_back(title.starts_with('>'));
    if (is_right_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Columns::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    if (cell.empty()) cell.push_back('-');
  }
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Columns::lines() const {
  std::vector<std::size_t> widths(is_right_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blank(widths[i] - width_of(row[i]), ' ');
      const bool is_last = i + 1 == row.size();
      if (i > 0) line += std::string(kGap, ' ');
      line += is_right_[i] ? blank + row[i] : is_last ? row[i] : row[i] + blank;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace gantry::top
