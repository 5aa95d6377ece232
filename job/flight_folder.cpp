#include "job/flight_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/files/own_folder.hpp"
#include "core/processes/process_stamp.hpp"
#include "job/flight_copy.hpp"
#include "job/flight_place.hpp"

namespace gantry::flight {

namespace {

// Owns a descriptor of the folder or of a file in it.
class Opened {
 public:
  explicit Opened(int descriptor) : descriptor_(descriptor) {}
  Opened(Opened&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Opened& operator=(Opened&&) = delete;
  ~Opened() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] explicit operator bool() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

Opened open_directory(const std::string& path, int flags = O_NOFOLLOW) {
  return Opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags));
}

// folder(), if it is this user's alone; else none, and why. Without a folder there is no failure.
Opened open_folder(std::string& failure) {
  const std::string path = folder();
  if (const std::optional<uid_t> owner = foreign_owner(path)) {
    failure = fmt::format("{} was made by another user ({})", path, *owner);
    return Opened(-1);
  }
  return Opened(open_own_folder(path, failure).release());
}

// The facts about `name` in `directory`, if it is a regular file of this user.
std::optional<struct stat> own_file(int directory, const char* name) {
  struct stat facts {};
  if (fstatat(directory, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) return std::nullopt;
  return facts;
}

// Opens a file without a wait, should it be a pipe; none unless it is regular, and this user's
// where `is_own` asks for it.
Opened open_regular(int directory, const char* name, int access, bool is_own) {
  Opened file(openat(directory, name, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) return Opened(-1);
  if (S_ISREG(facts.st_mode) && (!is_own || facts.st_uid == geteuid())) return file;
  errno = EPERM;
  return Opened(-1);
}

struct SplitPath {
  explicit SplitPath(const std::string& path) {
    const std::filesystem::path whole(path);
    directory = whole.parent_path().string();
    if (directory.empty()) directory.push_back('.');
    name = whole.filename().string();
  }

  std::string directory;
  std::string name;
};

// A file of this user in an open folder().
struct Found {
  std::string name;
  timespec changed{};
};

std::vector<Found> find_files(const Opened& folder, std::string_view suffix = kSuffix) {
  std::vector<Found> found;
  // fdopendir keeps the descriptor, so it gets one of its own.
  Opened listed(openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const directory = listed ? fdopendir(listed.get()) : nullptr;
  if (directory == nullptr) return found;
  (void)listed.release();
  while (const dirent* entry = readdir(directory)) {
    if (!std::string_view(entry->d_name).ends_with(suffix)) continue;
    const auto facts = own_file(folder.get(), entry->d_name);
    if (facts) found.push_back({entry->d_name, facts->st_mtim});
  }
  closedir(directory);
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.changed.tv_sec, a.changed.tv_nsec) >
           std::pair(b.changed.tv_sec, b.changed.tv_nsec);
  });
  return found;
}

std::optional<OpenFile> read_found(const Opened& directory, const std::string& name,
                                   Extent extent) {
  const Opened file = open_regular(directory.get(), name.c_str(), O_RDONLY, true);
  if (!file) return std::nullopt;
  return OpenFile::read(file.get(), fmt::format("{}/{}", folder(), name), extent);
}

}  // namespace

std::optional<OpenFile> OpenFile::open(const std::string& path) {
  const SplitPath split(path);
  // The user named this directory; a link to one is as good.
  const Opened directory = open_directory(split.directory, 0);
  if (!directory) return std::nullopt;
  const Opened file = open_regular(directory.get(), split.name.c_str(), O_RDONLY, false);
  if (!file) return std::nullopt;
  return read(file.get(), path, Extent::whole);
}

std::optional<OpenFile> OpenFile::read(int descriptor, std::string path, Extent extent) {
  const auto copied = copy_file(descriptor, extent == Extent::whole);
  if (!copied) return std::nullopt;
  return OpenFile(copied->base, copied->bytes, std::move(path));
}

OpenFile::~OpenFile() {
  if (base_ != nullptr) free_copy({base_, bytes_});
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
  result.failure = make_folder();
  if (!result.failure.empty()) return result;
  const Opened directory = open_folder(result.failure);
  if (!directory) return result;
  result.path = fmt::format("{}/{}{}", folder(), name, kSuffix);
  const std::string file = name + kSuffix;
  Opened made(openat(directory.get(), file.c_str(),
                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made) {
    result.failure = fmt::format("{}: {}", result.path, std::strerror(errno));
    return result;
  }
  // Without room of its own, a file in memory kills its writer when the room is gone.
  if (const int error = posix_fallocate(made.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    result.failure = fmt::format("{}: {}", result.path, std::strerror(error));
    unlinkat(directory.get(), file.c_str(), 0);
    return result;
  }
  result.descriptor = made.release();
  return result;
}

int open_own_file(const std::string& path) {
  const SplitPath split(path);
  const Opened directory = open_directory(split.directory);
  if (!directory) return -1;
  return open_regular(directory.get(), split.name.c_str(), O_RDWR, true).release();
}

bool remove_file(const std::string& path) noexcept {
  try {
    const SplitPath split(path);
    const Opened directory = open_directory(split.directory);
    return directory && own_file(directory.get(), split.name.c_str()) &&
           unlinkat(directory.get(), split.name.c_str(), 0) == 0;
  } catch (const std::exception&) {
    return false;  // out of host memory: the file stays until it is stale
  }
}

bool rename_file(const std::string& from, const std::string& to) noexcept {
  try {
    const SplitPath source(from);
    const SplitPath target(to);
    const Opened directory = open_directory(source.directory);
    // Writes through mappings do not change the time that readers sort by.
    return directory && source.directory == target.directory &&
           own_file(directory.get(), source.name.c_str()) &&
           utimensat(directory.get(), source.name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0 &&
           renameat(directory.get(), source.name.c_str(), directory.get(), target.name.c_str()) ==
               0;
  } catch (const std::exception&) {
    return false;  // out of host memory
  }
}

Listing read_files() {
  Listing listing;
  const Opened directory = open_folder(listing.failure);
  if (!directory) return listing;
  for (const Found& found : find_files(directory)) {
    if (auto file = read_found(directory, found.name, Extent::whole)) {
      listing.files.push_back(std::move(*file));
    }
  }
  return listing;
}

std::vector<std::string> list_files() {
  std::vector<std::string> paths;
  std::string failure;
  const Opened directory = open_folder(failure);
  if (!directory) return paths;
  for (const Found& found : find_files(directory)) {
    paths.push_back(fmt::format("{}/{}", folder(), found.name));
  }
  return paths;
}

std::size_t remove_stale_files(std::size_t keep, std::chrono::seconds max_age) {
  std::size_t removed = 0;
  std::size_t kept = 0;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::string failure;
  const Opened directory = open_folder(failure);
  if (!directory) return 0;
  const auto is_old = [&](const Found& found) {
    return now.tv_sec - found.changed.tv_sec >= max_age.count();
  };
  for (const Found& found : find_files(directory, kRetiredSuffix)) {
    const std::optional<OpenFile> file = read_found(directory, found.name, Extent::ranks);
    // One that a process was making a new one of when it was killed cannot be read, or has no
    // ranks.
    if (file && file->has_begun() ? file->is_over() : is_old(found)) {
      unlinkat(directory.get(), found.name.c_str(), 0);
    }
  }
  for (const Found& found : find_files(directory)) {
    const bool old = is_old(found);
    const std::optional<OpenFile> file = read_found(directory, found.name, Extent::ranks);
    // A file that cannot be read may be a group of another version, or one that is being made.
    if (file && file->has_begun() ? !file->is_over() : !old) continue;
    if (!old && kept < keep) {
      ++kept;
      continue;
    }
    if (unlinkat(directory.get(), found.name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace gantry::flight
