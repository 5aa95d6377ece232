// Files that a user names.
#pragma once

#include <cstddef>
#include <string>

namespace gantry {

/// The content of a file, or why there is none.
struct FileContent {
  std::string text{};
  std::string problem{};  ///< empty if the file was read

  [[nodiscard]] bool ok() const { return problem.empty(); }
};

/// Reads a regular file of at most `max_bytes`. Never waits for a pipe and never reads from a
/// device, whatever `path` names.
[[nodiscard]] FileContent read_regular_file(const std::string& path, std::size_t max_bytes);

/// Reads the regular file behind `descriptor` from its start.
[[nodiscard]] FileContent read_regular_file(int descriptor, std::size_t max_bytes);

/// Why `path` is no regular file: "a named pipe", an errno text; empty if it is one.
[[nodiscard]] std::string why_not_regular(const std::string& path);

}  // namespace gantry
