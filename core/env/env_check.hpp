// The check of the whole environment.
#pragma once

#include <string>
#include <vector>

namespace gantry::env {

/// True if this program has more rights than its caller: by its set-user-id or set-group-id bit, or
/// by capabilities of its file. It honours no variable then, and starts nothing that would.
[[nodiscard]] bool is_privileged() noexcept;

/// A sentence for each variable of this environment whose name is close to one of gantry's, and is
/// none: "GANTRY_SIM_DEVICE is no variable of gantry; did you mean GANTRY_SIM_DEVICES?"
[[nodiscard]] std::vector<std::string> misspelled_names();

/// Checks GANTRY_LOG, before a program does anything else. Logs misspelled names, once in a
/// process, unless glaunch started it and has said so. Throws: InvalidArgument.
void check_program();

/// Checks every variable of settings(). A malformed one is thus an error when gantry looks for
/// devices, in a job and in a single process. The text of GANTRY_ALLOC_CONF, GANTRY_BIND and
/// GANTRY_ELASTIC, and the files that variables name, are checked where they are used. Also does
/// what check_program() does. Throws: InvalidArgument.
void check_variables();

}  // namespace gantry::env
