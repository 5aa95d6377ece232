#include "core/files/code_file.hpp"

#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <gantry/core/env.hpp>

#include "core/files/regular_file.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;

std::optional<uid_t> owner_of(const fs::path& path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

// True if user 0 has no number in this user namespace. Files of root then show the overflow user.
bool is_root_unmapped() {
  std::ifstream map("/proc/self/uid_map");
  bool has_lines = false;
  for (std::uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (outside == 0 && count > 0) return false;
    has_lines = true;
  }
  return has_lines;
}

uid_t overflow_user() {
  uid_t user = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> user;
  return user;
}

// The users whose code may run here: the second rule of Note [Code of other users].
std::set<uid_t> trusted_users(const fs::path& own) {
  std::set<uid_t> users{0, geteuid()};
  const auto add = [&](const fs::path& path) {
    if (const auto owner = owner_of(path)) users.insert(*owner);
  };
  for (fs::path path = own; path.has_relative_path(); path = path.parent_path()) add(path);
  const auto add_loaded = [](dl_phdr_info* info, std::size_t, void* data) -> int {
    const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    if (path.starts_with('/')) {
      if (const auto owner = owner_of(path)) static_cast<std::set<uid_t>*>(data)->insert(*owner);
    }
    return 0;
  };
  dl_iterate_phdr(add_loaded, &users);
  add("/proc/self/exe");
  if (is_root_unmapped()) users.insert(overflow_user());
  return users;
}

// Why one file or folder is no place for code; empty if it is one.
std::string problem_of(const fs::path& path, bool is_file, CodeOrigin origin,
                       const std::set<uid_t>& users) {
  const auto name = [&] { return is_file ? "it" : fmt::format("'{}'", path.string()); };
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::strerror(errno);
  if (origin == CodeOrigin::found && !users.contains(status.st_uid)) {
    return fmt::format("{} belongs to user {}", name(), status.st_uid);
  }
  // Nobody but the owner renames or removes what is in such a folder.
  if (!is_file && (status.st_mode & S_ISVTX) != 0) return {};
  const bool is_group_open = origin == CodeOrigin::found && (status.st_mode & S_IWGRP) != 0 &&
                             status.st_gid != status.st_uid;
  if (!is_group_open && (status.st_mode & S_IWOTH) == 0) return {};
  return fmt::format("others may write {} (mode {:o})", name(), status.st_mode & 07777);
}

// Looks at `path`, which is absolute, and at the folders above it.
CodeFile check_with_folders(const fs::path& path, bool is_file, CodeOrigin origin,
                            const fs::path& own) {
  std::error_code failure;
  fs::path last = fs::canonical(path, failure);
  if (failure) return {{}, failure.message()};
  const std::set<uid_t> users = trusted_users(own);
  // Links on the way were followed: what the names led to is what counts.
  for (fs::path part = last;; part = part.parent_path(), is_file = false) {
    if (std::string problem = problem_of(part, is_file, origin, users); !problem.empty()) {
      return {{}, std::move(problem)};
    }
    if (!part.has_relative_path()) return {std::move(last), {}};
  }
}

}  // namespace

CodeFile check_code_file(const fs::path& path, CodeOrigin origin, const fs::path& own) {
  if (!path.is_absolute()) return {{}, "expected an absolute path"};
  // The loader would wait for the writer of a named pipe.
  if (std::string problem = why_not_regular(path.string()); !problem.empty()) {
    return {{}, std::move(problem)};
  }
  return check_with_folders(path, true, origin, own);
}

CodeFile check_code_folder(const fs::path& path) {
  struct stat status {};
  if (!path.is_absolute()) return {{}, "expected an absolute path"};
  if (stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    return {{}, std::strerror(ENOTDIR)};
  }
  return check_with_folders(path, false, CodeOrigin::found, gantry_file());
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> find_in_path(const std::string& name) {
  const std::string folders = env::get("PATH").value_or("");
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const fs::path folder = folders.substr(begin, end - begin);
    const fs::path program = folder / name;
    if (folder.is_absolute() && is_program(program) &&
        check_code_file(program, CodeOrigin::named).ok()) {
      return program;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace gantry
