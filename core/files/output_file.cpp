#include "core/files/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace gantry {
namespace {

// Another process may make or remove the file between two looks.
constexpr int kMostLooks = 16;

OutputFile failure(int code) { return {.problem = std::strerror(code), .code = code}; }
OutputFile refusal(std::string problem) { return {.problem = std::move(problem)}; }

// A descriptor of this process, shared with it: its position counts.
OutputFile copy_of(int descriptor) {
  const int mode = fcntl(descriptor, F_GETFL);
  if (mode >= 0 && (mode & O_ACCMODE) == O_RDONLY) return failure(EBADF);
  UniqueFd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) return failure(errno);
  return {.file = std::move(copy)};
}

OutputFile make_file(const OutputPlace& place) {
  UniqueFd file(openat(place.folder.get(), place.name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0666));
  if (!file) return failure(errno);
  return {.file = std::move(file), .is_new = true};
}

// Opens what is there. O_NONBLOCK: neither a pipe nor a lease of another process makes it wait.
OutputFile open_present(OutputPlace& place, OldContent old) {
  UniqueFd file(openat(place.folder.get(), place.name.c_str(),
                       O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return failure(errno);
  place.status = status;  // another file may have come meanwhile
  if (std::string problem = why_not_written(place); !problem.empty()) return refusal(problem);
  const bool is_regular = S_ISREG(status.st_mode);
  if (is_regular && old == OldContent::remove && ftruncate(file.get(), 0) != 0) {
    return failure(errno);
  }
  // A terminal takes its time.
  if (!is_regular) fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return {.file = std::move(file)};
}

}  // namespace

OutputFile open_output(OutputPlace place, OldContent old) {
  if (!place.ok()) return {.problem = place.problem, .code = place.code};
  if (place.descriptor >= 0) return copy_of(place.descriptor);
  if (std::string problem = why_not_written(place); !problem.empty()) return refusal(problem);
  OutputFile opened = place.status ? open_present(place, old) : make_file(place);
  if (opened.ok()) warn_of_open_folder(place);
  return opened;
}

OutputFile open_output(const std::string& path, OldContent old) {
  for (int look = 1;; ++look) {
    OutputPlace place = find_output(path);
    const bool is_found = place.ok();
    OutputFile opened = open_output(std::move(place), old);
    const bool has_changed = is_found && (opened.code == EEXIST || opened.code == ENOENT);
    if (!has_changed || look == kMostLooks) return opened;
  }
}

std::string why_no_output(const std::string& path) {
  const OutputFile opened = open_output(path, OldContent::keep);
  if (!opened.is_new) return opened.problem;
  const OutputPlace made = find_output(path);
  if (made.status) unlinkat(made.folder.get(), made.name.c_str(), 0);
  return {};
}

FileContent read_output(const std::string& path, std::size_t max_bytes) {
  OutputPlace place = find_output(path);
  if (!place.ok()) return {{}, place.problem};
  if (place.descriptor >= 0 || !place.status) return {{}, std::strerror(ENOENT)};
  // A device may do something when it is opened.
  if (!S_ISREG(place.status->st_mode)) return {{}, "no regular file"};
  const UniqueFd file(openat(place.folder.get(), place.name.c_str(),
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return {{}, std::strerror(errno)};
  place.status = status;  // another file may have come meanwhile
  if (std::string problem = why_not_written(place); !problem.empty()) return {{}, problem};
  return read_regular_file(file.get(), max_bytes);
}

bool remove_output(const std::string& path) noexcept try {
  const OutputPlace place = find_output(path, LastLink::keep);
  return place.ok() && place.descriptor < 0 && place.status &&
         unlinkat(place.folder.get(), place.name.c_str(), 0) == 0;
} catch (const std::exception&) {
  return false;  // out of memory
}

bool write_all(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace gantry
