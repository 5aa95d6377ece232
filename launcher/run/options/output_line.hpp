#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.hpp"
#include "launcher/run/options/output_options.hpp"

namespace gantry::launcher {

/// The options of the ranks' output and input.
class OutputLine {
 public:
  /// Adds them to a command line. Both `line` and `options` must outlive this.
  OutputLine(CommandLine& line, OutputOptions& options);

  /// Enters what was on the command line into the options. Throws: InvalidArgument.
  void read() const;

 private:
  OutputOptions& options_;
  std::optional<std::string> prefix_;
  bool no_prefix_ = false;
  std::string color_ = "auto";
  std::string stdin_mode_ = "rank0";
};

}  // namespace gantry::launcher
