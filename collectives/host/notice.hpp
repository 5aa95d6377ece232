#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/host/links.hpp"

namespace gantry {

// The last that a rank says over its links.
struct Notice {
  enum class Kind : std::int32_t { none, left, lost, late, aborted };
  Kind kind = Kind::none;
  std::int32_t culprit = -1;
};

// Throws what `why` means in a group of `size` ranks. `from`: who said so, −1 for this rank; `text`
// is what this rank knows more about it.
[[noreturn]] void raise_notice(const Notice& why, int from, const std::string& text, int size);

// What a rank says that waited for `missing` in vain.
std::string lateness_text(const LinkGroup& group, const std::vector<int>& missing);

}  // namespace gantry
