// A sample as lines of text.
#pragma once

#include <string>
#include <vector>

#include "tools/top/sample.hpp"

namespace gantry::top {

/// The lines of the table, of any length, without line ends.
[[nodiscard]] std::vector<std::string> table_lines(const Sample& sample);

/// "64.0M" for bytes; K, M, G and T are powers of 1024.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace gantry::top
