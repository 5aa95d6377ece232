#include "tools/top/terminal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "tools/top/columns.hpp"

namespace gantry::top {
namespace {

// DEC's private modes: 1049 another screen, 25 the cursor, 7 wrapping of long lines.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kEraseLine = "\x1b[K";
constexpr std::string_view kEraseBelow = "\x1b[J";
constexpr int kLeaveTimeoutMs = 1000;

struct Size {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

Size size_of(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

UniqueFd open_again(int terminal) {
  std::array<char, 256> name{};
  const char* path = ttyname_r(terminal, name.data(), name.size()) == 0 ? name.data() : "/dev/tty";
  UniqueFd opened(open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  return opened ? std::move(opened) : UniqueFd(fcntl(terminal, F_DUPFD_CLOEXEC, 0));
}

}  // namespace

std::string frame_of(const std::vector<std::string>& lines, std::size_t columns, std::size_t rows) {
  const bool is_cut = lines.size() > rows;
  const std::size_t shown = is_cut ? rows - 1 : lines.size();
  std::string frame(kHome);
  for (std::size_t i = 0; i < shown + (is_cut ? 1 : 0); ++i) {
    const std::string line =
        i < shown ? lines[i] : fmt::format("({} more lines)", lines.size() - shown);
    if (i > 0) frame += "\r\n";
    frame += cut(line, columns);
    // Behind a full line the cursor is on its last character, which would be erased.
    if (width_of(line) < columns) frame += kEraseLine;
  }
  if (shown < rows && !is_cut) {
    frame += shown > 0 ? "\r\n" : "";
    frame += kEraseBelow;
  }
  return frame;
}

Terminal::Terminal() {
  if (isatty(STDOUT_FILENO) == 0) {
    throw Error(
        "expected a terminal as standard output, but got a file or pipe; use --once or --json");
  }
  if (env::get("TERM").value_or("") == "dumb") {
    throw Error("expected a terminal that moves its cursor, but got TERM=dumb; use --once");
  }
  terminal_ = open_again(STDOUT_FILENO);
}

void Terminal::enter() {
  if (is_entered_) return;
  if (tcgetattr(terminal_.get(), &before_) != 0) {
    throw Error(
        fmt::format("failed to read the settings of the terminal: {}", std::strerror(errno)));
  }
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON);  // Ctrl-S would stop the output for good.
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(terminal_.get(), TCSANOW, &raw);
  is_entered_ = true;
  output_ = kEnter;
  flush();
}

void Terminal::leave() noexcept {
  if (!is_entered_) return;
  is_entered_ = false;
  tcsetattr(terminal_.get(), TCSANOW, &before_);
  output_ = kLeave;
  pollfd entry{terminal_.get(), POLLOUT, 0};
  for (flush(); has_output(); flush()) {
    if (poll(&entry, 1, kLeaveTimeoutMs) <= 0 || (entry.revents & POLLOUT) == 0) break;
  }
  output_.clear();
}

void Terminal::show(const std::vector<std::string>& lines) {
  if (has_output()) return;
  const Size size = size_of(terminal_.get());
  output_ = frame_of(lines, size.columns, size.rows);
  flush();
}

void Terminal::flush() noexcept {
  while (!output_.empty()) {
    const ssize_t written = write(terminal_.get(), output_.data(), output_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) output_.clear();  // The terminal is gone.
    if (written <= 0) return;
    output_.erase(0, static_cast<std::size_t>(written));
  }
}

std::string Terminal::read_keys() noexcept {
  std::array<char, 64> keys{};
  const ssize_t count = read(terminal_.get(), keys.data(), keys.size());
  return count > 0 ? std::string(keys.data(), static_cast<std::size_t>(count)) : std::string();
}

std::size_t output_columns() {
  return isatty(STDOUT_FILENO) != 0 ? size_of(STDOUT_FILENO).columns : 0;
}

}  // namespace gantry::top
