// Chooses rows of a selector's table from what was measured.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/selection/selector.hpp"

namespace gantry::tune {

/// The time of one choice at one size.
struct Sample {
  std::int64_t bytes = 0;
  Choice choice;
  double us = 0;
};

/// Another choice has to be that much faster before it is worth a row of its own.
inline constexpr double kHysteresis = 1.05;

/// The rows with the least sum of relative losses against the best time of each size, where a
/// change of choice costs as much as one loss by kHysteresis. Algorithms follow each other in the
/// order of Algorithm and never come back; among equals the one with fewer blocks is taken. The
/// last row holds for every size, so ll gives way to one_shot there. Empty if there are no samples.
[[nodiscard]] std::vector<SelectorRow> choose_rows(const std::vector<Sample>& samples);

/// The rows for registered memory, whose samples are `registered`; automatic stands for the best of
/// `others` at each size. Empty if it is best everywhere.
[[nodiscard]] std::vector<SelectorRow> choose_registered_rows(const std::vector<Sample>& registered,
                                                              const std::vector<Sample>& others);

}  // namespace gantry::tune
