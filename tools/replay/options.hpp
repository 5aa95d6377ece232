// The command line of gantry-replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::replay {

/// The arguments of the command line.
struct Options {
  std::string text;  ///< not empty: print this and end (--help, --version)
  std::string file;
  std::string workload;
  std::vector<std::string> backends;
  int device = 0;
  std::optional<int> log_device;
  std::optional<std::uint64_t> limit_bytes;
  std::optional<double> limit_factor;
  bool threads_as_logged = false;
  int repeat = 5;
  double max_seconds = 60;
  std::optional<std::uint64_t> simulate_bytes;
  std::string json;
  std::string picture;
  std::string dump;
  bool quiet = false;
};

/// Parses the arguments behind the program's name. Throws: InvalidArgument.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace gantry::replay
