#pragma once

#include <string>
#include <vector>

namespace gantry::launcher {

/// "0-2, 5" for {0, 1, 2, 5}.
[[nodiscard]] std::string rank_list(const std::vector<int>& ranks);

}  // namespace gantry::launcher
