#include "core/processes/process_stamp.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <gantry/core/error.hpp>

#include "core/env/settings.hpp"
#include "core/files/regular_file.hpp"
#include "core/processes/boot_id.hpp"

namespace gantry {
namespace {

struct Stat {
  char state = 'X';
  int threads = 0;
  std::uint64_t start_time = 0;
};

struct Failure {
  int error = 0;
};

// Field `index` of the text behind the command name, from 0.
std::string_view field(std::string_view text, int index) {
  for (;; --index) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    if (index == 0) return word;
    text.remove_prefix(word.size());
  }
}

template <class Number>
bool parse(std::string_view word, Number& value) {
  return std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc();
}

std::optional<Stat> parse_stat(std::string_view text) {
  // The command name in parentheses may contain anything, also parentheses.
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  constexpr int kThreads = 17;
  constexpr int kStartTime = 19;
  Stat result;
  const std::string_view state = field(text, 0);
  if (state.empty() || !parse(field(text, kThreads), result.threads) ||
      !parse(field(text, kStartTime), result.start_time)) {
    return std::nullopt;
  }
  result.state = state.front();
  return result;
}

// /proc/<pid>/stat.
std::variant<Stat, Failure> look_up(std::int32_t pid) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const int descriptor = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Failure{errno};
  std::array<char, 2048> text{};
  ssize_t got = 0;
  do {
    got = ::read(descriptor, text.data(), text.size());
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  ::close(descriptor);
  if (got < 0) return Failure{error};
  const auto stat = parse_stat({text.data(), static_cast<std::size_t>(got)});
  if (!stat) return Failure{EPROTO};
  return *stat;
}

}  // namespace

ProcessStamp this_process() {
  // One look for the whole process: a later one could fail. A fork changes the number.
  static std::atomic<std::int32_t> known_pid{0};
  static std::atomic<std::uint64_t> known_start{0};
  const std::int32_t pid = getpid();
  if (known_pid.load(std::memory_order_acquire) == pid) {
    return {pid, known_start.load(std::memory_order_relaxed)};
  }
  const auto found = look_up(pid);
  if (const auto* failure = std::get_if<Failure>(&found)) {
    throw Error("this_process: failed to read /proc/" + std::to_string(pid) +
                "/stat: " + std::strerror(failure->error) +
                (failure->error == EMFILE ? "; raise the limit of open files (ulimit -n)"
                                          : "; gantry needs a /proc of this pid namespace"));
  }
  const std::uint64_t start = std::get<Stat>(found).start_time;
  known_start.store(start, std::memory_order_relaxed);
  known_pid.store(pid, std::memory_order_release);
  return {pid, start};
}

std::optional<ProcessStamp> find_process(std::int32_t pid) noexcept {
  const auto found = look_up(pid);
  const auto* stat = std::get_if<Stat>(&found);
  return stat == nullptr ? std::nullopt : std::optional(ProcessStamp{pid, stat->start_time});
}

ProcessStatus status_of(const ProcessStamp& process) noexcept {
  if (process.pid <= 0) return {Liveness::ended, 0};
  const auto found = look_up(process.pid);
  if (const auto* failure = std::get_if<Failure>(&found)) {
    if (::kill(process.pid, 0) != 0 && errno == ESRCH) return {Liveness::ended, 0};
    return {Liveness::unknown, failure->error};
  }
  const Stat& stat = std::get<Stat>(found);
  if (stat.start_time != process.start_time) return {Liveness::ended, 0};
  // The state belongs to the first thread, which may end before the others.
  if (stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1)) return {Liveness::ended, 0};
  return {stat.state == 'T' || stat.state == 't' ? Liveness::stopped : Liveness::running, 0};
}

bool has_ended(const ProcessStamp& process) noexcept {
  return status_of(process).liveness == Liveness::ended;
}

bool is_stopped(const ProcessStamp& process) noexcept {
  return status_of(process).liveness == Liveness::stopped;
}

std::string boot_id() {
  if (std::string pretended = env::kBootId.text(); !pretended.empty()) return pretended;
  return kernel_boot_id();
}

const std::string& kernel_boot_id() {
  // A look that fails throws, and the next call looks again: no answer must pass for one.
  static const auto& kId = *new std::string([] {
    const std::string path = "/proc/sys/kernel/random/boot_id";
    FileContent content = read_regular_file(path, 4096);
    if (!content.ok()) {
      throw Error("boot_id: failed to read " + path + ": " + content.problem);
    }
    content.text.resize(std::min(content.text.find('\n'), content.text.size()));
    return std::move(content.text);
  }());
  return kId;
}

}  // namespace gantry
