// The machines of a job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/run/options/host.hpp"

namespace gantry::launcher {

/// Parses "a:4,b:4" or "a,b"; `what` names it in the error. Throws: InvalidArgument.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text, std::string_view what);

/// Reads a hostfile: a line "name", "name slots=4" or "name:4" for each host, comments behind "#".
/// Throws: InvalidArgument that names the line.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);

/// The hosts of a list of Slurm's such as "gpu[003-005,9],login1". Throws: InvalidArgument.
[[nodiscard]] std::vector<Host> expand_nodelist(std::string_view list);

/// True if `name` is this machine's: localhost, a loopback address, or its host name.
[[nodiscard]] bool is_this_machine(std::string_view name);

/// The address of this machine that `hosts` reach it at: the one packets to the first of them leave
/// from, else its first address that is no loopback one; 127.0.0.1 if all are this machine.
[[nodiscard]] std::string address_for(const std::vector<Host>& hosts);

}  // namespace gantry::launcher
