// The variables whose values can be checked without using them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::env {

/// True if this program has more rights than its caller: by its set-user-id or set-group-id bit, or
/// by capabilities of its file. It honours no variable then, and starts nothing that would.
[[nodiscard]] bool is_privileged() noexcept;

/// Value of `name`, which must be one of `choices`; the first of them if unset or empty.
/// Throws: InvalidArgument that names the variable, its value and the choices.
[[nodiscard]] std::string get_choice(const char* name,
                                     std::initializer_list<std::string_view> choices);

/// A sentence for each variable of this environment whose name is close to one of gantry's, and is
/// none: "GANTRY_SIM_DEVICE is no variable of gantry; did you mean GANTRY_SIM_DEVICES?"
[[nodiscard]] std::vector<std::string> misspelled_names();

/// Checks GANTRY_LOG, before a program does anything else. Logs misspelled names, once in a
/// process, unless glaunch started it and has said so. Throws: InvalidArgument.
void check_program();

/// Checks the numbers of a rank's identity, GANTRY_DEVICE, GANTRY_RDZV, GANTRY_COLL_TIMEOUT,
/// GANTRY_HOST_LINKS, GANTRY_HOST_CRYPT, GANTRY_SANITIZER, GANTRY_P2P and GANTRY_FLIGHT_DIR. A
/// malformed one is thus an error when gantry looks for devices, in a job and in a single process.
/// Other variables are checked where they are used. Also does what check_program() does.
/// Throws: InvalidArgument.
void check_variables();

}  // namespace gantry::env
