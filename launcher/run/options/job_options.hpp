#pragma once

#include <string>
#include <vector>

#include "launcher/run/options/failure_options.hpp"
#include "launcher/run/options/host.hpp"
#include "launcher/run/options/output_options.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {

/// A variable of the environment.
struct Variable {
  std::string name;
  std::string value;
};

/// The command line of a job, parsed and checked.
struct JobOptions {
  std::string help = {};                ///< the text of --help or --version; empty: there is a job
  std::vector<std::string> notes = {};  ///< lines for the user about options without effect
  std::vector<std::string> command = {};
  PlacementOptions placement = {};
  std::vector<Host> hosts = {};        ///< of --hosts or --hostfile; empty: see job_hosts()
  std::vector<Variable> exports = {};  ///< of -x: set before anything else reads the environment
  OutputOptions output = {};
  FailureOptions failure = {};
  bool dry_run = false;  ///< prints the plan
  bool json = false;     ///< prints it as JSON
};

}  // namespace gantry::launcher
