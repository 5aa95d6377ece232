// The commands of glaunch, and the parts that they share.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/machine/topology.hpp>

#include "command_line/description.hpp"

namespace gantry::launcher {

/// A command of glaunch, such as `glaunch topo`.
struct Command {
  std::string_view name;
  /// Its options, for the help, the manual page and the completion of glaunch.
  ProgramDescription (*describe)();
  /// Runs it with the arguments behind its name. Returns glaunch's exit code.
  /// Throws: InvalidArgument for the arguments; Error.
  int (*run)(const std::vector<std::string>& arguments);
  /// False for arguments behind the name of a program to start, as in `glaunch env A=1 app`.
  /// nullptr: the name is always the command's.
  bool (*takes)(const std::vector<std::string>& arguments) = nullptr;
};

/// Calls `parse`. Its InvalidArgument then says how a program called `command` is started.
template <class Parse>
auto parse_as(std::string_view command, Parse parse) {
  const std::string name(command);
  try {
    return parse();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(name + ": " + error.what() + " (to start a program called " + name +
                          ": glaunch -- " + name + ")");
  }
}

/// Prints the output of a command. Throws: Error if it does not arrive.
void print(const std::string& text);

/// Prints an error if stderr works; the exit code reports it, too.
void print_error(const std::exception& error) noexcept;

/// Warns of misspelled variables. Throws: InvalidArgument for a GANTRY_LOG with which no rank could
/// start.
void check_environment();

/// The sources of facts about the machine: `file` of --topo-file, else what the environment says.
[[nodiscard]] machine::TopologyOptions topology_options(const std::optional<std::string>& file);

}  // namespace gantry::launcher
