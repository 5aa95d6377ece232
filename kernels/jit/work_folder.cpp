#include "kernels/jit/work_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/files/code_file.hpp"
#include "core/files/output_file.hpp"

namespace gantry::kernels::jit {

namespace {

constexpr int kMostNames = 100;

std::string random_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) {
    throw Error(fmt::format("jit::elementwise: failed to make a name: {}", std::strerror(errno)));
  }
  return fmt::format("gantry-jit-{:016x}", number);
}

void remove_content(int folder) noexcept {
  // fdopendir keeps the descriptor, so it gets one of its own.
  const int listed = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const directory = listed < 0 ? nullptr : fdopendir(listed);
  if (directory == nullptr) {
    if (listed >= 0) close(listed);
    return;
  }
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") unlinkat(folder, entry->d_name, 0);
  }
  closedir(directory);
}

}  // namespace

WorkFolder::WorkFolder() {
  const std::string named = env::get("TMPDIR").value_or("");
  const std::string place = named.empty() ? std::string("/tmp") : named;
  const auto fail = [&](std::string_view problem) {
    throw Error(fmt::format(
        "jit::elementwise: failed to make a folder in '{}': {}; set TMPDIR to another folder",
        place, problem));
  };
  const CodeFile checked = check_code_folder(std::filesystem::absolute(place));
  if (!checked.ok()) fail(checked.problem);
  base_ = UniqueFd(open(checked.path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!base_) fail(std::strerror(errno));
  int made = -1;
  for (int i = 0; made != 0 && i < kMostNames; ++i) {
    name_ = random_name();
    made = mkdirat(base_.get(), name_.c_str(), 0700);
    if (made != 0 && errno != EEXIST) fail(std::strerror(errno));
  }
  const UniqueFd opened(
      openat(base_.get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // Above the standard streams, whose numbers may be free: the compiler gets others there.
  folder_ = UniqueFd(fcntl(opened.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  struct stat status {};
  if (!folder_ || fstat(folder_.get(), &status) != 0) {
    const int code = errno;
    unlinkat(base_.get(), name_.c_str(), AT_REMOVEDIR);
    fail(std::strerror(code));
  }
  if (status.st_uid != geteuid()) fail(fmt::format("it belongs to user {}", status.st_uid));
}

WorkFolder::~WorkFolder() {
  remove_content(folder_.get());
  unlinkat(base_.get(), name_.c_str(), AT_REMOVEDIR);
}

void WorkFolder::write(const char* name, const std::string& text) const {
  const UniqueFd file(
      openat(folder_.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || !write_all(file.get(), text)) {
    throw Error(fmt::format("jit::elementwise: failed to write '{}' in '{}': {}", name, name_,
                            std::strerror(errno)));
  }
}

FileContent WorkFolder::read(const char* name, std::size_t max_bytes) const {
  const UniqueFd file(
      openat(folder_.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return {{}, std::strerror(errno)};
  if (status.st_uid != geteuid()) {
    return {{}, fmt::format("it belongs to user {}", status.st_uid)};
  }
  return read_regular_file(file.get(), max_bytes);
}

}  // namespace gantry::kernels::jit
