#include "core/files/regular_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gantry {
namespace {

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a named pipe";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    case S_IFSOCK:
      return "a socket";
    default:
      return "no regular file";
  }
}

std::string problem_of(const struct stat& status) {
  return S_ISREG(status.st_mode) ? std::string() : kind_of(status.st_mode);
}

}  // namespace

FileContent read_regular_file(int descriptor, std::size_t max_bytes) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return {{}, std::strerror(errno)};
  if (std::string problem = problem_of(status); !problem.empty()) return {{}, std::move(problem)};
  // The size is a hint: the file may grow meanwhile, and files of /proc say 0.
  const auto hint = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  std::string text;
  while (text.size() <= max_bytes && hint <= max_bytes) {
    const std::size_t before = text.size();
    text.resize(before + std::clamp<std::size_t>(hint - std::min(hint, before), 4096, 1 << 20));
    const ssize_t got =
        pread(descriptor, text.data() + before, text.size() - before, static_cast<off_t>(before));
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return {std::move(text), {}};
    if (got < 0 && errno != EINTR) return {{}, std::strerror(errno)};
  }
  return {{}, fmt::format("a file of more than {} bytes", max_bytes)};
}

FileContent read_regular_file(const std::string& path, std::size_t max_bytes) {
  // Devices may do something when they are opened, so the name is looked at before.
  if (std::string problem = why_not_regular(path); !problem.empty()) return {{}, problem};
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return {{}, std::strerror(errno)};
  FileContent content = read_regular_file(descriptor, max_bytes);
  close(descriptor);
  return content;
}

std::string why_not_regular(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::strerror(errno);
  return problem_of(status);
}

}  // namespace gantry
