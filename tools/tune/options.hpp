// The command line of gantry-tune.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/selection/selector.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::tune {

/// The arguments of the command line.
struct Options {
  std::string text;  ///< not empty: print this and end (--help)
  std::vector<CollectiveKind> operations;
  std::vector<Algorithm> algorithms;
  std::vector<int> blocks;
  std::vector<std::int64_t> sizes;
  DType dtype = f32;
  int devices = 0;  ///< 0: all
  bool eager = false;
  int graph_calls = 20;
  bench::Repetitions repetitions;
  std::string output;   ///< empty: stdout
  bool merge = false;   ///< keeps the other tables of `output`
  std::string samples;  ///< every measurement, as gantry-bench writes them
  bool quiet = false;
};

/// Parses the arguments behind the program's name. Throws: InvalidArgument.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace gantry::tune
