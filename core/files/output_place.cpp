#include "core/files/output_place.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include <gantry/core/log.hpp>

namespace gantry {
namespace {

constexpr int kMostLinks = 40;  // as the kernel

bool is_own(uid_t user) { return user == 0 || user == geteuid(); }

std::string belongs_to(uid_t user) {
  return fmt::format("belongs to user {}, and this process runs as user {}", user, geteuid());
}

// Puts the parts of `path` in front of `parts`.
void prepend(std::deque<std::string>& parts, std::string_view path) {
  std::deque<std::string> front;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") front.emplace_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  parts.insert(parts.begin(), front.begin(), front.end());
}

UniqueFd open_part(int folder, const char* name, int flags) {
  return UniqueFd(openat(folder, name, O_PATH | O_CLOEXEC | flags));
}

// The descriptor of this process that `name` in the folder stands for, or none.
std::optional<int> own_descriptor(int folder, const std::string& name) {
  struct statfs system {};
  struct stat here {};
  struct stat own {};
  if (fstatfs(folder, &system) != 0 || system.f_type != PROC_SUPER_MAGIC) return std::nullopt;
  if (fstat(folder, &here) != 0 || stat("/proc/self/fd", &own) != 0) return std::nullopt;
  if (here.st_dev != own.st_dev || here.st_ino != own.st_ino) return std::nullopt;
  int number = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (status != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// One walk along a path.
class Walk {
 public:
  Walk(std::string_view path, LastLink last) : path_(path), last_(last) { prepend(parts_, path); }

  OutputPlace run() {
    if (path_.empty()) return failure(ENOENT);
    if (!start(path_)) return failure(errno);
    while (!parts_.empty()) {
      const std::string name = std::move(parts_.front());
      parts_.pop_front();
      if (!take(name)) return std::move(place_);
    }
    return failure(EISDIR);  // a path such as "/" or ".."
  }

 private:
  bool start(std::string_view path) {
    place_.folder =
        UniqueFd(open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return static_cast<bool>(place_.folder);
  }

  // False if the walk is over.
  bool take(const std::string& name) {
    UniqueFd part = open_part(place_.folder.get(), name.c_str(), O_NOFOLLOW);
    struct stat status {};
    if (!part && errno == ENOENT && parts_.empty() && !path_.ends_with('/')) return end(name, {});
    if (!part || fstat(part.get(), &status) != 0) return stop(failure(errno));
    const bool is_last = parts_.empty();
    if (S_ISLNK(status.st_mode) && !(is_last && last_ == LastLink::keep)) {
      return follow(name, part.get(), status);
    }
    const bool needs_folder = !is_last || path_.ends_with('/');
    if (needs_folder && !S_ISDIR(status.st_mode)) return stop(failure(ENOTDIR));
    if (is_last) return end(name, status);
    place_.folder = std::move(part);
    return true;
  }

  bool follow(const std::string& name, int link, const struct stat& status) {
    const auto descriptor =
        parts_.empty() ? own_descriptor(place_.folder.get(), name) : std::nullopt;
    if (descriptor) {
      place_.folder.reset();
      place_.descriptor = *descriptor;
      return false;
    }
    if (!is_own(status.st_uid)) {
      OutputPlace refused = failure(EPERM);
      refused.problem = fmt::format("the link '{}' {}", name, belongs_to(status.st_uid));
      return stop(std::move(refused));
    }
    if (++links_ > kMostLinks) return stop(failure(ELOOP));
    std::array<char, PATH_MAX> target{};
    const ssize_t size = readlinkat(link, "", target.data(), target.size());
    if (size < 0) return stop(failure(errno));
    const std::string_view text(target.data(), static_cast<std::size_t>(size));
    if (text.starts_with('/') && !start(text)) return stop(failure(errno));
    prepend(parts_, text);
    return true;
  }

  bool end(const std::string& name, std::optional<struct stat> status) {
    place_.name = name;
    place_.status = status;
    return false;
  }
  bool stop(OutputPlace place) {
    place_ = std::move(place);
    return false;
  }
  static OutputPlace failure(int code) {
    OutputPlace place;
    place.code = code;
    place.problem = std::strerror(code);
    return place;
  }

  const std::string path_;
  const LastLink last_;
  std::deque<std::string> parts_;  // that are still to be taken
  int links_ = 0;
  OutputPlace place_;
};

// True if other users may make names in the folder.
bool is_shared(const struct stat& folder) {
  const bool is_group_open = (folder.st_mode & S_IWGRP) != 0 && folder.st_gid != folder.st_uid;
  return !is_own(folder.st_uid) || (folder.st_mode & S_IWOTH) != 0 || is_group_open;
}

}  // namespace

OutputPlace find_output(std::string_view path, LastLink last) { return Walk(path, last).run(); }

std::string why_not_written(const OutputPlace& place) {
  if (!place.status) return {};
  const struct stat& status = *place.status;
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
    case S_IFCHR:
      break;
    case S_IFDIR:
      return std::strerror(EISDIR);
    case S_IFIFO:
      return "a named pipe";
    case S_IFLNK:
      return "a link";
    case S_IFSOCK:
      return "a socket";
    default:
      return "no regular file";
  }
  if (!is_own(status.st_uid)) return "it " + belongs_to(status.st_uid);
  struct stat folder {};
  if (S_ISREG(status.st_mode) && status.st_nlink > 1 &&
      (fstat(place.folder.get(), &folder) != 0 || is_shared(folder))) {
    return fmt::format("it has {} names, and other users may make names in its folder",
                       status.st_nlink);
  }
  return {};
}

void warn_of_open_folder(const OutputPlace& place) noexcept try {
  struct stat folder {};
  if (!place.folder || fstat(place.folder.get(), &folder) != 0) return;
  const bool is_open = (folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0;
  if (is_own(folder.st_uid) && !is_open) return;
  static std::mutex mutex;
  static std::set<std::pair<dev_t, ino_t>>& told = *new std::set<std::pair<dev_t, ino_t>>;
  {
    const std::lock_guard lock(mutex);
    if (!told.emplace(folder.st_dev, folder.st_ino).second) return;
  }
  const std::string cause =
      is_own(folder.st_uid)
          ? fmt::format("everybody may write it (mode {:o})", folder.st_mode & 07777)
          : fmt::format("it belongs to user {}", folder.st_uid);
  logging::warn(fmt::format(
      "the folder of the output file '{}' is not this user's alone: {}; other users may replace "
      "the file",
      place.name, cause));
} catch (const std::exception&) {
  // Out of memory: the warning is lost, and the file is safe all the same.
}

}  // namespace gantry
