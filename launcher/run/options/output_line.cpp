#include "launcher/run/options/output_line.hpp"

#include <gantry/core/error.hpp>

#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {

OutputLine::OutputLine(CommandLine& line, OutputOptions& options) : options_(options) {
  line.add_option("--prefix", prefix_, "start of each line: {rank} {local_rank} {host}");
  line.add_flag("--no-prefix", no_prefix_, "print lines as they are");
  line.add_option("--color", color_, "colour prefixes (auto: on a terminal)")
      .one_of({"auto", "always", "never"});
  line.add_option("--only-rank", options.only_rank, "show only this rank's output")
      .range(0, kMaxRanks - 1)
      .value("R");
  line.add_option("--log-dir", options.log_dir, "write each rank's output to rank<R>.out, .err")
      .value("DIR", ValueKind::directory);
  line.add_flag("--tee", options.tee, "write output to files, too, in a new directory");
  line.add_option("--stdin", stdin_mode_, "reader of standard input (rank0)")
      .one_of({"rank0", "none"});
}

void OutputLine::read() const {
  if (no_prefix_ && prefix_) {
    throw InvalidArgument("--prefix and --no-prefix contradict each other");
  }
  options_.has_own_prefix = prefix_.has_value();
  if (prefix_) options_.prefix = prefix_;
  if (no_prefix_) options_.prefix.reset();
  options_.color = color_ == "always"  ? ColorMode::always
                   : color_ == "never" ? ColorMode::never
                                       : ColorMode::automatic;
  if (options_.log_dir && options_.log_dir->empty()) {
    throw InvalidArgument("--log-dir: expected a directory, but got ''");
  }
  options_.stdin_mode = stdin_mode_ == "none" ? StdinMode::none : StdinMode::rank0;
}

}  // namespace gantry::launcher
