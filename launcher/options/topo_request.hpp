#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace gantry::launcher {

/// How `glaunch topo` prints the machine.
enum class TopoForm { matrix, tree, json, svg };

/// The arguments of `glaunch topo`.
struct TopoRequest {
  TopoForm form = TopoForm::matrix;
  bool redact = false;  ///< JSON without names and UUIDs
};

/// The arguments of `glaunch check`.
struct CheckRequest {
  std::optional<int> ranks;  ///< of the job that is to run; none: one per GPU
  bool json = false;
  bool full = false;                           ///< measures bandwidths, too
  std::chrono::milliseconds deadline{30'000};  ///< of one measurement
};

}  // namespace gantry::launcher
