#include "launcher/run/output/stdin_relay.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace gantry::launcher {
namespace {

constexpr auto kLookPeriod = std::chrono::milliseconds(500);

// In the background, reading would stop glaunch, and the input belongs to another program.
bool in_foreground() { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

}  // namespace

StdinRelay::StdinRelay(EventLoop& loop) : loop_(loop) {
  if (isatty(STDIN_FILENO) == 0) {
    source_ = STDIN_FILENO;
    return;
  }
  if (!in_foreground()) return;  // the rank gets no input then
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  source_ = ends[0];
  owns_source_ = true;
  sink_ = ends[1];
  fcntl(sink_, F_SETFL, fcntl(sink_, F_GETFL) | O_NONBLOCK);
  loop_.watch_input(STDIN_FILENO, [this] { read_terminal(); });
}

StdinRelay::~StdinRelay() {
  stop();
  handed_over();
}

void StdinRelay::handed_over() {
  if (owns_source_) close(source_);
  owns_source_ = false;
}

void StdinRelay::look_again() {
  if (!look_again_ || Clock::now() < *look_again_) return;
  look_again_.reset();
  if (sink_ >= 0) loop_.watch_input(STDIN_FILENO, [this] { read_terminal(); });
}

void StdinRelay::read_terminal() {
  if (tcgetpgrp(STDIN_FILENO) < 0) {  // hung up: no typing will come any more
    stop();
    return;
  }
  if (!in_foreground()) {
    loop_.forget(STDIN_FILENO);
    look_again_ = Clock::now() + kLookPeriod;
    return;
  }
  std::array<char, 4096> chunk;
  const ssize_t got = read(STDIN_FILENO, chunk.data(), chunk.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    stop();
    return;
  }
  waiting_.assign(chunk.data(), static_cast<std::size_t>(got));
  write_pipe();
}

void StdinRelay::write_pipe() {
  while (!waiting_.empty()) {
    const ssize_t count = write(sink_, waiting_.data(), waiting_.size());
    if (count >= 0) {
      waiting_.erase(0, static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      // The rank reads nothing: leave the rest of the typing in the terminal.
      loop_.forget(STDIN_FILENO);
      loop_.watch_output(sink_, [this] { write_pipe(); });
      return;
    } else if (errno != EINTR) {
      stop();
      return;
    }
  }
  loop_.forget(sink_);
  loop_.watch_input(STDIN_FILENO, [this] { read_terminal(); });
}

void StdinRelay::stop() {
  if (sink_ < 0) return;
  loop_.forget(STDIN_FILENO);
  loop_.forget(sink_);
  close(std::exchange(sink_, -1));
}

}  // namespace gantry::launcher
