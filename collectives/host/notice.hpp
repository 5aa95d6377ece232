#pragma once

#include <cstdint>

namespace gantry {

// The last that a rank says over its links.
struct Notice {
  enum class Kind : std::int32_t { none, left, lost, late, aborted };
  Kind kind = Kind::none;
  std::int32_t culprit = -1;
};

}  // namespace gantry
