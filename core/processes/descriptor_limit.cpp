#include "core/processes/descriptor_limit.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <memory>

namespace gantry {

namespace {

// The open descriptors of this process; all that the limit allows if there is none to count them.
std::size_t count_open(const rlimit& limit) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  if (!directory) return limit.rlim_cur;
  std::size_t count = 0;
  while (const dirent* entry = readdir(directory.get())) count += entry->d_name[0] != '.' ? 1 : 0;
  return count;
}

}  // namespace

bool make_room_for_descriptors(std::size_t count) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur == RLIM_INFINITY) return true;
  const std::size_t needed = count_open(limit) + count;
  if (needed <= limit.rlim_cur) return true;
  // All that is to be had: the next group needs more.
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && needed <= limit.rlim_cur;
}

std::string descriptor_limit_text() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("the limit of open files is {}; raise it (ulimit -n)", limit.rlim_cur);
}

}  // namespace gantry
