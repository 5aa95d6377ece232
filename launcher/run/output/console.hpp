#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace gantry::launcher {

/// One place where output goes: the terminal, a file or a pipe behind descriptor 1 or 2.
///
/// A thread of its own writes, so a slow reader delays no rank: text waits in memory up to a limit
/// and in a temporary file beyond it. A reader that goes away means that text is dropped.
/// Thread safety: one thread may call the members.
class Console {
 public:
  /// Writes to `fd`; waiting text beyond `memory_bytes` goes to a file in `spill_directory`.
  Console(int fd, std::string spill_directory, std::size_t memory_bytes = std::size_t{8} << 20);
  /// Does not wait for text that was not written yet: see drained().
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Writes a piece of a line of `owner`. The first piece of a line gets `prefix`; a line that is
  /// open when another owner speaks is ended first.
  void write(int owner, std::string_view prefix, std::string_view text, bool ends_line);
  /// Ends the open line, if it is `owner`'s.
  void end_line_of(int owner);
  /// True if everything was written or dropped.
  [[nodiscard]] bool drained() const;
  /// Why text was dropped (errno), EPIPE if the reader went away; 0: none was.
  [[nodiscard]] int failure() const;
  /// A descriptor that becomes readable when drained() has become true; read it with clear().
  [[nodiscard]] int drained_fd() const;
  void clear() const;

 private:
  void put(std::string_view text);
  void end_line();

  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  int line_owner_ = kNobody;

  static constexpr int kNobody = -1;
};

}  // namespace gantry::launcher
