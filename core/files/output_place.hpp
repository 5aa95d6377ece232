// Where a file lies that gantry writes.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>

#include <gantry/extend/unique_fd.hpp>

namespace gantry {

// Note [Files in folders of other users]
// Another user may own the folder of an output file, or may write it. The name of the file may then
// be a link to a file that the other user wants to be overwritten, or a named pipe that nobody
// reads. Every file that gantry writes is therefore found and opened here:
//  1. The path is walked folder by folder. A link counts only if it belongs to root or to this
//     user. The checks concern open descriptors, so that nothing changes between check and use.
//  2. The file is new, or it is a regular file or a character device of root or of this user.
//     Opening never waits for the reader of a pipe, and pipes are refused.
//  3. A file with several names may be a file that matters elsewhere. It is refused where others
//     may make names in its folder.
//  4. /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N are the descriptors of this process,
//     whatever they are.
// The same holds for root. A folder where others may replace the file is a warning, once.

/// The place of an output file.
struct OutputPlace {
  UniqueFd folder{};                    ///< for calls such as openat; none for a descriptor
  std::string name{};                   ///< in the folder
  std::optional<struct stat> status{};  ///< of the file that is there
  int descriptor = -1;                  ///< the one that the path names, by rule 4
  std::string problem{};                ///< why there is no such place; empty if there is one
  int code = 0;                         ///< errno of the problem

  [[nodiscard]] bool ok() const { return problem.empty(); }
};

/// Whether a link at the end of a path is followed.
enum class LastLink { follow, keep };

/// Finds the place of `path` by Note [Files in folders of other users]. The file need not exist.
[[nodiscard]] OutputPlace find_output(std::string_view path, LastLink last = LastLink::follow);

/// Why the file at `place` is not written; empty if it may be, or if none is there.
[[nodiscard]] std::string why_not_written(const OutputPlace& place);

/// Warns, once for each folder of a process, if other users may replace files in it.
void warn_of_open_folder(const OutputPlace& place) noexcept;

}  // namespace gantry
