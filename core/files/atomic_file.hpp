// A file that never shows a part of its new content.
#pragma once

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string_view>

namespace gantry {

/// Replaces the content of a file at once: readers see all of the old content or all of the new.
///
///   AtomicFile file(path, "save_snapshot: ");
///   file.out() << text;
///   file.commit();
///
/// The content goes to a temporary file in the same folder, which commit() renames. A link to a
/// file stays a link, and the file keeps its permissions. Without commit() nothing changes.
/// Pipes, terminals, and files in folders that refuse a temporary file are written in place.
class AtomicFile {
 public:
  /// `prefix` begins the errors. Throws: Error if the file cannot be written.
  explicit AtomicFile(std::filesystem::path path, std::string_view prefix = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  [[nodiscard]] std::ostream& out() { return out_; }
  /// Throws: Error if the content did not arrive; the old content stays, except in place.
  void commit();

 private:
  [[nodiscard]] bool open_temporary();
  [[noreturn]] void fail(int code) const;

  std::filesystem::path path_;       ///< as the caller names it
  std::filesystem::path target_;     ///< the file that is replaced
  std::filesystem::path temporary_;  ///< empty: written in place
  std::string_view prefix_;
  std::filesystem::perms permissions_ = std::filesystem::perms::unknown;
  std::ofstream out_;
};

}  // namespace gantry
