// Text in columns of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::top {

/// Columns that a terminal needs for `text`, or more; `text` is UTF-8 without control characters.
[[nodiscard]] std::size_t width_of(std::string_view text);
/// The beginning of `text` that fits into this many columns.
[[nodiscard]] std::string cut(std::string_view text, std::size_t columns);

/// Rows of cells that stand below each other.
class Columns {
 public:
  /// The first row. A title that begins with ">" is without it, and its column is right-aligned.
  explicit Columns(std::vector<std::string> titles);

  /// Adds a row of as many cells. An empty cell is shown as "-".
  void add(std::vector<std::string> cells);
  /// All rows; the last column is as long as its cell.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  std::vector<bool> is_right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gantry::top
