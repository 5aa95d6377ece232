#pragma once

#include <cstdint>

namespace gantry {

// The last message of a rank on a control connection: why it stops.
struct ControlMessage {
  enum class Kind : std::int32_t { none, left, lost, late, aborted };
  Kind kind = Kind::none;
  std::int32_t failed_rank = -1;
};

}  // namespace gantry
