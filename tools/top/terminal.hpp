// A terminal as a full screen.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

namespace gantry::top {

/// The bytes that show `lines` on a screen from its upper left corner. Lines are cut at `columns`.
/// If there are more than `rows`, the last row tells how many are missing.
[[nodiscard]] std::string frame_of(const std::vector<std::string>& lines, std::size_t columns,
                                   std::size_t rows);

// Note [Leaving a terminal that takes no output]
// The program opens the terminal a second time and sets O_NONBLOCK there. On standard output the
// flag would also affect the shell, because both share one open file description. So a terminal
// that accepts no output, such as one at the end of a broken connection, blocks no write, and a
// signal still ends the program. If the terminal has no name to open, writes may block.

/// The terminal behind standard output. The destructor restores it.
///
/// Thread safety: none.
class Terminal {
 public:
  /// Throws: Error if standard output is no terminal, or one that cannot move its cursor.
  Terminal();
  ~Terminal() { leave(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Shows an empty screen in place of the present one, and turns echo off.
  void enter();
  /// Restores what enter() changed. Waits at most a second for a terminal that takes no output.
  void leave() noexcept;

  /// Shows a frame, unless the terminal has not yet taken the one before.
  void show(const std::vector<std::string>& lines);
  /// Writes what the terminal takes without waiting.
  void flush() noexcept;
  [[nodiscard]] bool has_output() const { return !output_.empty(); }
  /// The keys that were pressed since the last call.
  [[nodiscard]] std::string read_keys() noexcept;
  [[nodiscard]] int descriptor() const { return terminal_.get(); }

 private:
  UniqueFd terminal_;
  termios before_{};
  bool is_entered_ = false;
  std::string output_;  ///< what is still to be written
};

/// Columns of the terminal behind standard output; 0 if it is none.
[[nodiscard]] std::size_t output_columns();

}  // namespace gantry::top
