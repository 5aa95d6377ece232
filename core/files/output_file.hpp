// Files that gantry writes: opened without harm to other files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/output_place.hpp"
#include "core/files/regular_file.hpp"

namespace gantry {

/// Whether the content of a file that is opened stays.
enum class OldContent { remove, keep };

/// A file that is open for writing, or why it is not.
struct OutputFile {
  UniqueFd file{};        ///< closed in programs that this process starts
  bool is_new = false;    ///< the call made it
  std::string problem{};  ///< "a named pipe", an errno text; empty if the file is open
  int code = 0;           ///< errno of the problem, if it has one

  [[nodiscard]] bool ok() const { return problem.empty(); }
};

/// Opens `path` for writing by Note [Files in folders of other users], and makes the file if there
/// is none. Never waits.
[[nodiscard]] OutputFile open_output(const std::string& path, OldContent old = OldContent::remove);
/// As above, at a place that find_output() has found.
[[nodiscard]] OutputFile open_output(OutputPlace place, OldContent old);

/// Why `path` could not be written; empty if it could. Leaves what is there as it is.
[[nodiscard]] std::string why_no_output(const std::string& path);

/// Reads back a regular file of root or of this user, by the same note.
[[nodiscard]] FileContent read_output(const std::string& path, std::size_t max_bytes);

/// Removes the file or link `path`. A link in one of its folders counts only if it belongs to root
/// or to this user. False if nothing was removed.
bool remove_output(const std::string& path) noexcept;

/// Writes all of `text`; false with errno if it does not arrive.
[[nodiscard]] bool write_all(int file, std::string_view text) noexcept;

}  // namespace gantry
