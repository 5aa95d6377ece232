#pragma once

#include <optional>
#include <string>

namespace gantry::launcher {

/// Which rank reads glaunch's standard input.
enum class StdinMode { rank0, none };

/// When prefixes are coloured; `automatic`: on a terminal, unless NO_COLOR or TERM=dumb is set.
enum class ColorMode { automatic, always, never };

/// The ways of the ranks' output and input.
struct OutputOptions {
  bool has_own_prefix = false;                      ///< --prefix was given
  std::optional<std::string> prefix = "[{rank}] ";  ///< none: lines are printed as they are
  ColorMode color = ColorMode::automatic;
  std::optional<std::string> log_dir;
  bool tee = false;  ///< keeps the output in files also without `log_dir`
  std::optional<int> only_rank;
  int tail = 20;  ///< lines shown of a rank that failed
  StdinMode stdin_mode = StdinMode::rank0;
};

}  // namespace gantry::launcher
