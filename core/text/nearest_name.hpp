#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

/// The one of `names` that `typed` is most likely a misspelling of: the nearest by insertions,
/// deletions, replacements and swaps of neighbours, if it is near; else one that begins with it.
/// Dashes and underscores count as equal.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view typed,
                                                      const std::vector<std::string>& names);

}  // namespace gantry
