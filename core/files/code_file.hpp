// Files whose code gantry loads or runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/files/gantry_file.hpp"

namespace gantry {

// Note [Code of other users]
// A library that is loaded, and a helper program that is started, can do all that this user can.
// gantry therefore takes such files from trusted places alone:
//  1. Paths are absolute. The current directory may belong to anybody.
//  2. The file, and every folder above it, belongs to root, to this user, or to an owner of code
//     that this process runs already: of gantry's own file, its folders, or a loaded library.
//  3. Nobody else may write the file or one of the folders. Folders with the sticky bit, such as
//     /tmp, are no objection. A group whose number is the owner's is the owner's private group.
// A program that the user names, by PATH or a variable, need not follow the second rule. Compilers
// and launchers of clusters belong to all sorts of accounts. Of the third rule it follows the part
// about everybody.
// Names without a slash are the dynamic loader's: its search path holds no current directory.

/// How gantry came to know a file.
enum class CodeOrigin {
  found,  ///< gantry looked for it, or loads it into this process
  named,  ///< the user named the program
};

/// A file whose code may run, or why it may not.
struct CodeFile {
  std::filesystem::path path{};  ///< without links; set where there is no problem
  std::string problem{};         ///< "it belongs to user 1002"; empty if its code may run

  [[nodiscard]] bool ok() const { return problem.empty(); }
};

/// Looks at `path` by Note [Code of other users], as if gantry were in the file `own`.
[[nodiscard]] CodeFile check_code_file(const std::filesystem::path& path, CodeOrigin origin,
                                       const std::filesystem::path& own = gantry_file());

/// Looks at a folder in which code is made, as at a folder above a file that gantry found.
[[nodiscard]] CodeFile check_code_folder(const std::filesystem::path& path);

/// True if `path` is a regular file that this user may run.
[[nodiscard]] bool is_program(const std::filesystem::path& path);

/// Returns the first program with this name in the folders of PATH. Leaves out relative folders,
/// and programs that everybody may write.
[[nodiscard]] std::optional<std::filesystem::path> find_in_path(const std::string& name);

}  // namespace gantry
