// Where flight files lie, and what becomes of those whose ranks are gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/flight_file.hpp"

namespace gantry::flight {

/// A file of some group, mapped for reading.
class OpenFile {
 public:
  /// None if the file is not there, is no flight file, or is of another version.
  static std::optional<OpenFile> open(const std::string& path);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  [[nodiscard]] const View& view() const { return view_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// True once the process of every rank that came has ended.
  [[nodiscard]] bool is_over() const;
  /// True once a rank has come: rank 0 makes the file before it knows the others.
  [[nodiscard]] bool has_begun() const;

 private:
  OpenFile(void* base, std::size_t bytes, std::string path)
      : base_(base), bytes_(bytes), path_(std::move(path)), view_(base) {}

  void* base_;
  std::size_t bytes_;
  std::string path_;
  View view_;
};

/// A new file of `bytes` zeros, or why there is none.
struct NewFile {
  int descriptor = -1;  ///< the caller's
  std::string path{};
  std::string failure{};
};

/// Makes a file in folder(), which is made if need be and must be this user's alone.
[[nodiscard]] NewFile create_file(const std::string& name, std::size_t bytes);
/// Paths of this user's files, newest first.
[[nodiscard]] std::vector<std::string> list_files();
/// Removes files whose ranks have all ended, but for the `keep` newest that are younger than
/// `max_age`; returns how many.
std::size_t remove_stale_files(std::size_t keep, std::chrono::seconds max_age);

}  // namespace gantry::flight
