#include "core/files/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/output_file.hpp"

namespace gantry {

AtomicFile::AtomicFile(std::filesystem::path path, std::string_view prefix)
    : path_(std::move(path)), prefix_(prefix), place_(find_output(path_.native())) {
  if (!place_.ok()) fail(place_.problem);
  if (const std::string problem = why_not_written(place_); !problem.empty()) fail(problem);
  const bool is_regular = place_.status && S_ISREG(place_.status->st_mode);
  if (is_regular) {
    if (faccessat(place_.folder.get(), place_.name.c_str(), W_OK, AT_EACCESS) != 0) fail(errno);
    permissions_ = place_.status->st_mode & 07777;
  }
  if (place_.descriptor < 0 && (is_regular || !place_.status)) {
    if (UniqueFd file = open_temporary()) {
      warn_of_open_folder(place_);
      out_.open(std::move(file));
      return;
    }
    if (!is_regular) fail(errno);
  }
  OutputFile opened = open_output(std::move(place_), OldContent::remove);
  if (!opened.ok()) fail(opened.problem);
  out_.open(std::move(opened.file));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlinkat(place_.folder.get(), temporary_.c_str(), 0);
}

// O_EXCL: neither a file of another process nor a link that is there already is written.
UniqueFd AtomicFile::open_temporary() {
  for (int number = 0; number < 1000; ++number) {
    std::string candidate = fmt::format("{}.{}.{}.tmp", place_.name, getpid(), number);
    UniqueFd file(openat(place_.folder.get(), candidate.c_str(),
                         O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file) {
      temporary_ = std::move(candidate);
      return file;
    }
    if (errno != EEXIST) break;
  }
  return {};
}

void AtomicFile::commit() {
  out_.flush();
  if (!temporary_.empty() && permissions_ && out_.good() &&
      fchmod(out_.descriptor(), *permissions_) != 0) {
    fail(errno);
  }
  if (const int code = out_.close(); code != 0) fail(code);
  if (temporary_.empty()) return;
  const int folder = place_.folder.get();
  if (renameat(folder, temporary_.c_str(), folder, place_.name.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void AtomicFile::fail(int code) const { fail(std::strerror(code != 0 ? code : EIO)); }

void AtomicFile::fail(std::string_view cause) const {
  throw Error(fmt::format("{}failed to write '{}': {}", prefix_, path_.string(), cause));
}

}  // namespace gantry
