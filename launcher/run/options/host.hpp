#pragma once

#include <optional>
#include <string>

namespace gantry::launcher {

/// A machine of a job.
struct Host {
  std::string name;
  std::optional<int> ranks;  ///< none: as many as the others get
};

}  // namespace gantry::launcher
