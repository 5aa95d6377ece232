// The folder of flight files, where another user may have taken its name.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace gantry::flight {

// Note [A flight folder of another user]
// The usual name, gantry-<user> in GANTRY_FLIGHT_DIR, is known to everybody. If another user has
// made something of that name, this user's folder has a number behind it: gantry-<user>.1, or the
// first number that nobody else has taken. folder() finds it again, since nobody else can make a
// folder of this user.

/// The folder's usual name.
[[nodiscard]] std::string usual_folder();
/// The other user who made what is at `path`; none if nobody did.
[[nodiscard]] std::optional<uid_t> foreign_owner(const std::string& path);
/// Makes folder() if need be, and warns once if its usual name is taken. Returns why it could not;
/// empty if there is a folder.
[[nodiscard]] std::string make_folder();

}  // namespace gantry::flight
