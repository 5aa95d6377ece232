// The folder in which a compiler works.
#pragma once

#include <cstddef>
#include <string>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/regular_file.hpp"

namespace gantry::kernels::jit {

// A new folder of this user alone, below TMPDIR or /tmp. It is removed with what is in it.
//
// The code that a compiler leaves here is loaded. The folder is therefore made where no other user
// can rename it, and its files are reached by its descriptor, whatever becomes of its name.
class WorkFolder {
 public:
  // Throws: Error if there is no such place.
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // For the program that starts in it.
  [[nodiscard]] int descriptor() const { return folder_.get(); }
  // Makes a file. Throws: Error.
  void write(const char* name, const std::string& text) const;
  // Reads a regular file of this user.
  [[nodiscard]] FileContent read(const char* name, std::size_t max_bytes) const;

 private:
  UniqueFd base_;
  std::string name_;
  UniqueFd folder_;
};

}  // namespace gantry::kernels::jit
