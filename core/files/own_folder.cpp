#include "core/files/own_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/text/sha256.hpp"

namespace gantry {
namespace {

// A socket's path has 107 characters at most.
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kHashedDigits = 32;

std::string usual_folder() { return fmt::format("/dev/shm/gantry-{}", geteuid()); }
// The system makes it, for users that are logged in.
std::string session_folder() { return fmt::format("/run/user/{}", geteuid()); }

// Below the home that this user owns; "" without one.
std::string home_folder() {
  const std::string home = env::get("HOME").value_or("");
  struct stat facts {};
  if (!home.starts_with('/') || stat(home.c_str(), &facts) != 0) return {};
  return S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() ? home + "/.cache/gantry/run" : "";
}

// False with errno.
bool make_folder(const std::string& folder) {
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}
bool make_with_parents(const std::string& folder) {
  if (make_folder(folder)) return true;
  if (errno != ENOENT) return false;
  return make_with_parents(folder.substr(0, folder.rfind('/'))) && make_folder(folder);
}

bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

UniqueFd open_own_folder(const std::string& path, std::string& failure) {
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (!opened || fstat(opened.get(), &facts) != 0) {
    if (errno == ENOENT) return {};
    // A link is ELOOP or ENOTDIR.
    const int code = errno;
    struct stat entry {};
    const bool is_foreign = lstat(path.c_str(), &entry) == 0 && entry.st_uid != geteuid();
    failure = is_foreign ? fmt::format("{} belongs to user {}", path, entry.st_uid)
                         : fmt::format("{}: {}", path,
                                       code == ELOOP ? "expected a directory, but got a link"
                                                     : std::strerror(code));
    return {};
  }
  if (facts.st_uid != geteuid()) {
    failure = fmt::format("{} belongs to user {}", path, facts.st_uid);
    return {};
  }
  if ((facts.st_mode & 077) != 0) {
    failure = fmt::format("{} is open to other users", path);
    return {};
  }
  return opened;
}

std::string own_folder() {
  std::string failure;
  std::string folder = usual_folder();
  (void)open_own_folder(folder, failure);
  if (failure.empty()) return folder;
  std::string other_failure;
  if (open_own_folder(session_folder(), other_failure)) return session_folder();
  const std::string home = home_folder();
  return home.empty() ? folder : home;
}

void prepare_own_folder() {
  const std::string folder = own_folder();
  const bool is_made = make_with_parents(folder);
  std::string failure = is_made ? "" : fmt::format("{}: {}", folder, std::strerror(errno));
  if (is_made && open_own_folder(folder, failure)) return;
  throw Error(fmt::format(
      "socket: failed to use a folder of this user alone: {}; remove it, or set GANTRY_RDZV to "
      "another address on all ranks",
      failure.empty() ? folder : failure));
}

std::string own_socket_path(std::string_view name) {
  return fmt::format(
      "{}/{}", own_folder(),
      is_plain(name) ? std::string(name) : sha256_hex(name).substr(0, kHashedDigits));
}

}  // namespace gantry
