#include "core/process_stamp.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace gantry {
namespace {

// Start time from /proc/<pid>/stat; none if there is no such process or it is dead but not reaped.
std::optional<std::uint64_t> start_time(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The command name in parentheses may contain anything, also parentheses.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int kFieldsBetweenStateAndStart = 18;
  std::string skipped;
  for (int i = 0; i < kFieldsBetweenStateAndStart; ++i) fields >> skipped;
  std::uint64_t result = 0;
  if (!(fields >> result)) return std::nullopt;
  return result;
}

}  // namespace

ProcessStamp this_process() {
  // A fork changes the number, so the cache is checked.
  thread_local ProcessStamp known;
  const std::int32_t pid = getpid();
  if (known.pid != pid) known = {pid, start_time(pid).value_or(0)};
  return known;
}

bool is_running(const ProcessStamp& process) {
  return start_time(process.pid) == process.start_time;
}

}  // namespace gantry
