// A file that never shows a part of its new content.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "core/files/output_place.hpp"
#include "core/files/output_stream.hpp"

namespace gantry {

/// Replaces the content of a file at once: readers see all of the old content or all of the new.
///
///   AtomicFile file(path, "save_snapshot: ");
///   file.out() << text;
///   file.commit();
///
/// The content goes to a temporary file in the same folder, which commit() renames. A link to a
/// file stays a link, and the file keeps its permissions. Without commit() nothing changes.
/// Devices, descriptors such as /dev/stdout, and files in folders that refuse a temporary file are
/// written in place. What is refused: Note [Files in folders of other users].
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
  [[nodiscard]] UniqueFd open_temporary();
  [[noreturn]] void fail(int code) const;
  [[noreturn]] void fail(std::string_view cause) const;

  std::filesystem::path path_;  ///< as the caller names it
  std::string_view prefix_;
  OutputPlace place_;
  std::string temporary_;  ///< in the folder of the place; empty: written in place
  std::optional<mode_t> permissions_;
  OutputStream out_;
};

}  // namespace gantry
