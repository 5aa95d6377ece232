#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/run/events/event_loop.hpp"
#include "launcher/run/options/output_options.hpp"
#include "launcher/run/output/console.hpp"
#include "launcher/run/output/log_files.hpp"
#include "launcher/run/output/stream.hpp"
#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// Merges the ranks' output line by line, keeps it in files, and remembers the last lines.
class Output {
 public:
  /// Writes to descriptors 1 and 2; `scratch_directory` takes what a slow reader leaves waiting.
  /// `logs` stays alive as long as this object.
  Output(const OutputOptions& options, const Plan& plan, const LogFiles& logs,
         const std::string& scratch_directory);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Takes what `rank` wrote.
  void receive(int rank, Stream stream, std::string_view bytes);
  /// `rank` will write no more to `stream`: its last line is printed as it is.
  void finish(int rank, Stream stream);
  /// When flush_partial_lines() must be called next; none: no partial line waits.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  /// Prints the lines that have waited for their end for 100 ms. Before each, `read_again` looks
  /// without waiting whether the rest of the line is there; it may call receive() and finish().
  void flush_partial_lines(const std::function<void(int rank, Stream stream)>& read_again);
  /// Forgets the last lines of all ranks: the job starts again.
  void clear_tails();
  /// Forgets the last lines of one rank: it starts again.
  void clear_tail(int rank);
  /// Last lines of a rank, oldest first; lines of stderr are marked.
  [[nodiscard]] std::vector<std::string> tail(int rank) const;
  /// Prints a line of glaunch's own to stderr, without anything that a terminal acts on.
  void message(std::string_view line);
  /// The same for lines that hold the output of a rank, which stays as it is.
  void report(const std::vector<std::string>& lines);

  /// Says if standard output did not take everything. For the end, once drained.
  void report_loss();
  /// True if the consoles have written everything.
  [[nodiscard]] bool drained() const;
  /// Calls `handler` when that may have become true.
  void watch_drained(EventLoop& loop, const EventLoop::Handler& handler);

 private:
  struct Source;  // one stream of one rank

  Source& source(int rank, Stream stream);
  void print(Source& from, std::string_view piece, bool ends_line);
  void remember(Source& from, std::string_view line);

  std::size_t tail_lines_;
  const LogFiles& logs_;
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same place as out_
  std::vector<Source> sources_;
  std::vector<std::deque<std::string>> tails_;
};

/// Fills in a prefix such as "{host}:{rank}| ". Throws: InvalidArgument for an unknown field.
[[nodiscard]] std::string expand_prefix(std::string_view pattern, const RankPlan& rank,
                                        std::string_view host);

}  // namespace gantry::launcher
