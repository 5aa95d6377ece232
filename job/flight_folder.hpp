// Where flight files lie, and what becomes of those whose ranks are gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "job/flight_file.hpp"

namespace gantry::flight {

// Note [Trusting the flight folder]
// Every user of the machine knows the folder's name, and another user may have created it first.
// Every function here opens the folder and checks the open descriptor: a directory of this user
// that no other user can enter. It opens files only relative to that descriptor. It accepts regular
// files of this user only. Readers copy files with pread and never map them. A file that shrinks
// meanwhile gives a short read, not a SIGBUS.

/// How much of a file is copied.
enum class Extent {
  whole,
  ranks,  ///< the header and the ranks' own words: enough for is_over() and has_begun()
};

/// A copy of the file of some group. Entries that were written meanwhile are missing in it.
class OpenFile {
 public:
  /// Reads the file that a user named, whose owner may be another user.
  /// None if the file is not there, is no flight file, or is of another version.
  static std::optional<OpenFile> open(const std::string& path);
  /// As above; `path` is what path() tells, `descriptor` stays the caller's.
  static std::optional<OpenFile> read(int descriptor, std::string path, Extent extent);
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

/// Makes a file in folder(), which is made if need be and must be this user's alone. Warns once if
/// another user has made a folder of the usual name.
[[nodiscard]] NewFile create_file(const std::string& name, std::size_t bytes);
/// Opens a file that this user made, for reading and writing; −1 with the reason in errno.
[[nodiscard]] int open_own_file(const std::string& path);
/// Removes a file of this user; false if there is none.
bool remove_file(const std::string& path) noexcept;
/// Renames a file of this user inside its directory, and makes it the newest; false if there is
/// none.
bool rename_file(const std::string& from, const std::string& to) noexcept;
/// Ends the names of files that no function here lists: their groups have ended in order, and a
/// later group of the process may take them over.
inline constexpr const char* kRetiredSuffix = ".retired";

/// This user's files.
struct Listing {
  std::vector<OpenFile> files{};  ///< newest first
  std::string failure{};          ///< why folder() cannot be trusted or read; empty without one
};
[[nodiscard]] Listing read_files();
/// Paths of this user's files, newest first.
[[nodiscard]] std::vector<std::string> list_files();
/// Removes files whose ranks have all ended, but for the `keep` newest that are younger than
/// `max_age`; returns how many. Retired files do not count, and go as soon as their ranks have
/// ended, or by age if that is unknown.
std::size_t remove_stale_files(std::size_t keep, std::chrono::seconds max_age);

}  // namespace gantry::flight
