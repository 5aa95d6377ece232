#include "core/process_stamp.hpp"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <gantry/core/env.hpp>

namespace gantry {
namespace {

struct Stat {
  char state = 'X';
  std::uint64_t start_time = 0;
};

// From /proc/<pid>/stat; none if there is no such process or it is dead but not reaped.
std::optional<Stat> look_up(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  // Reading fails if the process ends now. getline() takes that for an end; iterators would throw.
  std::string text;
  std::getline(file, text, '\0');
  // The command name in parentheses may contain anything, also parentheses.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Stat result;
  fields >> result.state;
  constexpr int kFieldsBetweenStateAndThreads = 16;
  std::string skipped;
  for (int i = 0; i < kFieldsBetweenStateAndThreads; ++i) fields >> skipped;
  int threads = 0;
  if (!(fields >> threads >> skipped >> result.start_time)) return std::nullopt;
  // The state is that of the first thread, which may end before the others.
  if (result.state == 'X' || (result.state == 'Z' && threads <= 1)) return std::nullopt;
  return result;
}

}  // namespace

ProcessStamp this_process() {
  // A fork changes the number, so the cache is checked.
  thread_local ProcessStamp known;
  const std::int32_t pid = getpid();
  if (known.pid != pid) known = {pid, look_up(pid).value_or(Stat{}).start_time};
  return known;
}

bool is_running(const ProcessStamp& process) {
  const std::optional<Stat> stat = look_up(process.pid);
  return stat && stat->start_time == process.start_time;
}

bool is_stopped(const ProcessStamp& process) {
  const std::optional<Stat> stat = look_up(process.pid);
  return stat && stat->start_time == process.start_time &&
         (stat->state == 'T' || stat->state == 't');
}

std::string boot_id() {
  if (const auto pretended = env::get("GANTRY_BOOT_ID")) return *pretended;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace gantry
