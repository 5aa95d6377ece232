#include "core/files/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>

namespace gantry {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(fs::path path, std::string_view prefix)
    : path_(std::move(path)), target_(path_), prefix_(prefix) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  const bool is_dangling = !fs::exists(status) && fs::is_symlink(path_, ignored);
  bool in_place = is_dangling || (fs::exists(status) && !fs::is_regular_file(status));
  if (fs::is_regular_file(status)) {
    if (access(path_.c_str(), W_OK) != 0) fail(errno);
    permissions_ = status.permissions();
    if (const fs::path resolved = fs::canonical(path_, ignored); !resolved.empty()) {
      target_ = resolved;
    }
  }
  if (!in_place && !open_temporary()) {
    if (permissions_ == fs::perms::unknown) fail(errno);
    in_place = true;
  }
  errno = 0;
  out_.open(in_place ? target_ : temporary_, std::ios::binary | std::ios::trunc);
  const int code = errno;
  errno = 0;
  if (out_.is_open()) return;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  fail(code);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

// O_EXCL: neither a file of another process nor a link that is there already is written.
bool AtomicFile::open_temporary() {
  for (int number = 0; number < 1000; ++number) {
    fs::path candidate = target_;
    candidate += fmt::format(".{}.{}.tmp", getpid(), number);
    const UniqueFd file(open(candidate.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (file) {
      temporary_ = std::move(candidate);
      return true;
    }
    if (errno != EEXIST) return false;
  }
  return false;
}

void AtomicFile::commit() {
  // After a write that failed the stream writes nothing more, and errno is that of the write.
  if (out_.good()) errno = 0;
  out_.close();
  if (out_.fail()) fail(errno);
  if (temporary_.empty()) return;
  std::error_code failure;
  if (permissions_ != fs::perms::unknown) fs::permissions(temporary_, permissions_, failure);
  fs::rename(temporary_, target_, failure);
  if (failure) fail(failure.value());
  temporary_.clear();
}

void AtomicFile::fail(int code) const {
  throw Error(fmt::format("{}failed to write '{}': {}", prefix_, path_.string(),
                          std::strerror(code != 0 ? code : EIO)));
}

}  // namespace gantry
