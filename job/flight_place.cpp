#include "job/flight_place.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <gantry/core/log.hpp>

#include "core/env/settings.hpp"
#include "job/flight_file.hpp"

namespace gantry::flight {

namespace {

std::string parent_folder() {
  std::string parent = env::kFlightDir.text();
  return parent.empty() ? "/dev/shm" : parent;
}

// A directory that this user has made and nobody else can enter.
bool is_private(int parent, const char* name) {
  struct stat facts {};
  return fstatat(parent, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == geteuid() && (facts.st_mode & 077) == 0;
}

// The folder that replaces the usual one; the first by its name if there are several.
std::optional<std::string> replacement() {
  const std::string parent = parent_folder();
  const std::string prefix = fmt::format("gantry-{}.", geteuid());
  DIR* const directory = opendir(parent.c_str());
  if (directory == nullptr) return std::nullopt;
  std::string first;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || !is_private(dirfd(directory), entry->d_name)) continue;
    if (first.empty() || name < first) first = name;
  }
  closedir(directory);
  if (first.empty()) return std::nullopt;
  return fmt::format("{}/{}", parent, first);
}

// Processes that make one at the same time all take the first number that is free or this user's:
// a random name would leave the files of one where the others do not look. Returns why there is
// none; else empty.
std::string make_replacement(const std::string& usual) {
  for (int number = 1;; ++number) {
    const std::string path = fmt::format("{}.{}", usual, number);
    if (mkdir(path.c_str(), 0700) == 0) return {};
    if (errno != EEXIST) return fmt::format("{}: {}", path, std::strerror(errno));
    if (is_private(AT_FDCWD, path.c_str())) return {};
  }
}

}  // namespace

std::string usual_folder() { return fmt::format("{}/gantry-{}", parent_folder(), geteuid()); }

std::optional<uid_t> foreign_owner(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0 || facts.st_uid == geteuid()) return std::nullopt;
  return facts.st_uid;
}

std::string folder() {
  std::string usual = usual_folder();
  if (!foreign_owner(usual)) return usual;
  return replacement().value_or(std::move(usual));
}

std::string make_folder() {
  const std::string usual = usual_folder();
  if (mkdir(usual.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) return fmt::format("{}: {}", usual, std::strerror(errno));
  const std::optional<uid_t> owner = foreign_owner(usual);
  if (!owner) return {};
  if (!replacement()) {
    if (std::string failure = make_replacement(usual); !failure.empty()) {
      return fmt::format("{} was made by another user ({}), and {}", usual, *owner, failure);
    }
  }
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true)) {
    logging::warn(fmt::format(
        "the folder of flight recorders {} was made by another user ({}); they are in {}", usual,
        *owner, folder()));
  }
  return {};
}

}  // namespace gantry::flight
