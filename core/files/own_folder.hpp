// Folders of this user alone.
#pragma once

#include <string>
#include <string_view>

#include <gantry/extend/unique_fd.hpp>

namespace gantry {

// Note [Names that other users can guess]
// An abstract socket name belongs to the process that binds it first, whoever its user is. So a
// name that ranks derive from their job can be taken by another user of the machine. Sockets with
// such names are files in a folder of this user: no other user can make, find or open a file there.

/// Opens the directory `path`, if it is this user's alone. None, with the reason in `failure`, if
/// it is not; none without a reason if there is none.
[[nodiscard]] UniqueFd open_own_folder(const std::string& path, std::string& failure);

/// The folder of this user's sockets and locks: /dev/shm/gantry-UID; if another user has made that,
/// /run/user/UID, or ~/.cache/gantry/run without a session. prepare_own_folder() makes it.
[[nodiscard]] std::string own_folder();
/// Makes own_folder() if need be. Throws: Error if it is not this user's alone.
void prepare_own_folder();
/// The path of the socket `name` in own_folder(). Names that do not suit a path are hashed.
[[nodiscard]] std::string own_socket_path(std::string_view name);

}  // namespace gantry
