// The command line of gantry-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/operation.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::bench {

/// The arguments of the command line.
struct Options {
  std::string text;  ///< not empty: print this and end (--help)
  std::vector<CollectiveKind> operations;
  std::vector<std::string> forms;       ///< of gantry::comm, instead of operations
  std::vector<std::string> algorithms;  ///< as GANTRY_COLL_ALGO has them
  std::vector<std::int64_t> sizes;
  DType dtype = f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int devices = 0;  ///< 0: all
  std::optional<int> blocks;
  bool registered = false;
  int tensors = 200;
  int graph_calls = 0;
  bool eager = true;
  bool check = true;
  Repetitions repetitions;
  std::string json;
  std::string svg;
  std::vector<std::string> compare;
  std::string model;       ///< not empty: the times of these machines are predicted
  std::vector<int> ranks;  ///< of a model; empty: all of its GPUs
  std::string draw;        ///< not empty: these results are drawn, and nothing is measured
  bool quiet = false;
};

/// Parses the arguments behind the program's name. Throws: InvalidArgument.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// The different sizes of one operation that were asked for.
[[nodiscard]] std::vector<Case> cases_of(const Options& options, CollectiveKind kind, int ranks);

}  // namespace gantry::bench
