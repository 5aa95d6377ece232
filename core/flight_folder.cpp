#include "core/flight_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/process_stamp.hpp"

namespace gantry::flight {

namespace {

// An open folder() that is this user's alone; else −1 and why not.
int open_folder(std::string* failure) {
  const std::string path = folder();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    *failure = fmt::format("{}: {}", path, std::strerror(errno));
    return -1;
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat facts {};
  if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
    *failure = fmt::format("{}: {}", path, std::strerror(errno));
  } else if (facts.st_uid != geteuid() || (facts.st_mode & 077) != 0) {
    *failure = fmt::format("{} is open to other users", path);
  } else {
    return descriptor;
  }
  if (descriptor >= 0) close(descriptor);
  return -1;
}

struct Found {
  std::string path;
  timespec changed{};
};

std::vector<Found> find_files() {
  const std::string path = folder();
  std::vector<Found> found;
  DIR* const directory = opendir(path.c_str());
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    struct stat facts {};
    if (!name.ends_with(kSuffix) ||
        fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(facts.st_mode)) {
      continue;
    }
    found.push_back({fmt::format("{}/{}", path, name), facts.st_mtim});
  }
  closedir(directory);
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.changed.tv_sec, a.changed.tv_nsec) >
           std::pair(b.changed.tv_sec, b.changed.tv_nsec);
  });
  return found;
}

}  // namespace

std::optional<OpenFile> OpenFile::open(const std::string& path) {
  // Without a wait, should it be a pipe.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  struct stat facts {};
  void* base = MAP_FAILED;
  if (fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0) {
    base = mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ, MAP_SHARED, descriptor,
                0);
  }
  close(descriptor);
  if (base == MAP_FAILED) return std::nullopt;
  OpenFile file(base, static_cast<std::size_t>(facts.st_size), path);
  if (!View::is_valid(base, file.bytes_)) return std::nullopt;
  return file;
}

OpenFile::~OpenFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_),
      path_(std::move(other.path_)),
      view_(other.view_) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  std::swap(view_, other.view_);
  return *this;
}

bool OpenFile::is_over() const {
  bool has_begun = false;
  for (int rank = 0; rank < view_.header().ranks; ++rank) {
    const Rank& facts = view_.rank(rank);
    if (facts.pid <= 0) continue;
    if (!has_ended({facts.pid, facts.start_time})) return false;
    has_begun = true;
  }
  return has_begun;
}

bool OpenFile::has_begun() const {
  for (int rank = 0; rank < view_.header().ranks; ++rank) {
    if (view_.rank(rank).pid > 0) return true;
  }
  return false;
}

NewFile create_file(const std::string& name, std::size_t bytes) {
  NewFile result;
  const int directory = open_folder(&result.failure);
  if (directory < 0) return result;
  result.path = fmt::format("{}/{}{}", folder(), name, kSuffix);
  const std::string file = name + kSuffix;
  result.descriptor =
      openat(directory, file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (result.descriptor < 0) {
    result.failure = fmt::format("{}: {}", result.path, std::strerror(errno));
  } else if (const int error = posix_fallocate(result.descriptor, 0, static_cast<off_t>(bytes));
             error != 0) {
    // Without room of its own, a file in memory kills whoever writes it when the room is gone.
    result.failure = fmt::format("{}: {}", result.path, std::strerror(error));
    unlinkat(directory, file.c_str(), 0);
    close(std::exchange(result.descriptor, -1));
  }
  close(directory);
  return result;
}

std::vector<std::string> list_files() {
  std::vector<std::string> paths;
  for (Found& found : find_files()) paths.push_back(std::move(found.path));
  return paths;
}

std::size_t remove_stale_files(std::size_t keep, std::chrono::seconds max_age) {
  std::size_t removed = 0;
  std::size_t kept = 0;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  for (const Found& found : find_files()) {
    const bool old = now.tv_sec - found.changed.tv_sec >= max_age.count();
    const std::optional<OpenFile> file = OpenFile::open(found.path);
    // What cannot be read may be a group of another version, or one that is being made.
    if (file && file->has_begun() ? !file->is_over() : !old) continue;
    if (!old && kept < keep) {
      ++kept;
      continue;
    }
    if (unlink(found.path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace gantry::flight
