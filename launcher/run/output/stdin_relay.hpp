#pragma once

#include <optional>
#include <string>

#include "launcher/run/events/event_loop.hpp"

namespace gantry::launcher {

/// Hands a terminal's input on to rank 0 through a pipe.
///
/// Ranks are process groups of their own, and the terminal's driver would stop one that reads.
/// Input that is no terminal needs no relay: the rank inherits it.
class StdinRelay {
 public:
  /// Relays if glaunch itself may read the terminal behind descriptor 0.
  explicit StdinRelay(EventLoop& loop);
  ~StdinRelay();
  StdinRelay(const StdinRelay&) = delete;
  StdinRelay& operator=(const StdinRelay&) = delete;

  /// The descriptor that becomes rank 0's standard input; -1 for /dev/null.
  [[nodiscard]] int source() const { return source_; }
  /// Closes the pipe's read end in this process, once the rank has it.
  void handed_over();
  /// When look_again() must be called next; none: it need not.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const { return look_again_; }
  /// Reads again once glaunch is back in the foreground of its terminal.
  void look_again();

 private:
  void read_terminal();
  void write_pipe();
  void stop();

  EventLoop& loop_;
  int source_ = -1;
  int sink_ = -1;  // write end of the pipe; -1: no relay
  bool owns_source_ = false;
  std::string waiting_;
  std::optional<Clock::time_point> look_again_;
};

}  // namespace gantry::launcher
