// The command line of gantry-top.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gantry::top {

/// The arguments of the command line.
struct Options {
  std::string text;  ///< not empty: print this and end (--help, --version)
  std::chrono::milliseconds interval{1000};
  bool once = false;
  bool json = false;
};

/// Parses the arguments behind the program's name. Throws: InvalidArgument.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace gantry::top
