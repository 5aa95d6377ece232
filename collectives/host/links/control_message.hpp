#pragma once

#include <cstdint>

namespace gantry {

// A message of a rank on a connection: that it uses this one, and at last why it stops.
struct ControlMessage {
  enum class Kind : std::int32_t { none, left, lost, late, aborted, confirmed };
  Kind kind = Kind::none;
  std::int32_t failed_rank = -1;
};

}  // namespace gantry
