// The variables whose values can be checked without using them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace gantry::env {

/// Value of `name`, which must be one of `choices`; the first of them if unset or empty.
/// Throws: InvalidArgument that names the variable, its value and the choices.
[[nodiscard]] std::string get_choice(const char* name,
                                     std::initializer_list<std::string_view> choices);

/// Checks every variable that a later call would refuse or quietly leave aside, so that a
/// malformed one is an error wherever gantry initialises, in a job and in a single process.
/// Throws: InvalidArgument.
void check_variables();

}  // namespace gantry::env
