#include "launcher/run/output/output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/files/output_file.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::launcher {
namespace {

constexpr auto kPartialDelay = std::chrono::milliseconds(100);
constexpr std::size_t kMaxWaitingBytes = 64 << 10;  // of a line without an end
constexpr std::size_t kMaxTailLineBytes = 4096;
constexpr int kGlaunch = -2;  // owner of glaunch's own lines
// Neighbouring ranks differ. Neither black nor white, which a terminal may have as its ground.
constexpr std::array kColors{36, 33, 35, 32, 34, 31};

bool is_coloured(ColorMode mode, int fd) {
  switch (mode) {
    case ColorMode::always:
      return true;
    case ColorMode::never:
      return false;
    case ColorMode::automatic:
      break;
  }
  const std::optional<std::string> terminal = env::get("TERM");
  return env::get("NO_COLOR").value_or("").empty() && terminal && *terminal != "dumb" &&
         isatty(fd) == 1;
}

bool same_place(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

struct Output::Source {
  int owner = 0;  // distinguishes the sources on a console
  int rank = 0;
  Stream stream = Stream::out;
  std::string prefix;
  Console* console = nullptr;  // null: not shown
  int log = -1;
  bool log_failed = false;
  std::string waiting;  // of the current line, not printed yet
  std::string line;     // of the current line, for the tail
  std::optional<Clock::time_point> deadline;
  bool open = false;  // part of the current line is printed
};

std::string expand_prefix(std::string_view pattern, const RankPlan& rank, std::string_view host) {
  try {
    return fmt::format(fmt::runtime(pattern), fmt::arg("rank", rank.rank),
                       fmt::arg("local_rank", rank.local_rank), fmt::arg("host", host));
  } catch (const fmt::format_error&) {
    throw InvalidArgument(fmt::format(
        "--prefix: expected a text with {{rank}}, {{local_rank}} or {{host}}, but got '{}'",
        pattern));
  }
}

Output::Output(const OutputOptions& options, const Plan& plan, const LogFiles& logs,
               const std::string& scratch_directory)
    : tail_lines_(static_cast<std::size_t>(options.tail)), logs_(logs), tails_(plan.ranks.size()) {
  out_ = std::make_unique<Console>(STDOUT_FILENO, scratch_directory);
  // On one terminal the order between the two streams counts.
  if (!same_place(STDOUT_FILENO, STDERR_FILENO)) {
    err_ = std::make_unique<Console>(STDERR_FILENO, scratch_directory);
  }
  for (const RankPlan& rank : plan.ranks) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      Source from;
      from.owner = static_cast<int>(sources_.size());
      from.rank = rank.rank;
      from.stream = stream;
      if (options.prefix) from.prefix = expand_prefix(*options.prefix, rank, plan.host);
      const int fd = stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
      if (!from.prefix.empty() && is_coloured(options.color, fd)) {
        const int color = kColors[static_cast<std::size_t>(rank.rank) % kColors.size()];
        from.prefix = fmt::format("\x1b[{}m{}\x1b[0m", color, from.prefix);
      }
      if (!options.only_rank || *options.only_rank == rank.rank) {
        from.console = stream == Stream::err && err_ ? err_.get() : out_.get();
      }
      from.log = logs_.descriptor(rank.rank, stream);
      sources_.push_back(std::move(from));
    }
  }
}

Output::~Output() = default;

Output::Source& Output::source(int rank, Stream stream) {
  return sources_[static_cast<std::size_t>(rank) * 2 + (stream == Stream::err ? 1 : 0)];
}

void Output::print(Source& from, std::string_view piece, bool ends_line) {
  if (from.console != nullptr) {
    // A line that was shown in part and then ended by another one's needs no second end.
    if (from.open && piece == "\n" && !from.prefix.empty()) {
      from.console->end_line_of(from.owner);
    } else {
      from.console->write(from.owner, from.prefix, piece, ends_line);
    }
  }
  from.open = !ends_line;
}

void Output::remember(Source& from, std::string_view line) {
  auto& tail = tails_[static_cast<std::size_t>(from.rank)];
  if (tail_lines_ == 0) return;
  if (tail.size() == tail_lines_) tail.pop_front();
  const bool cut = line.size() > kMaxTailLineBytes;
  tail.push_back(fmt::format("{}{}{}", from.stream == Stream::err ? "err| " : "out| ",
                             line.substr(0, kMaxTailLineBytes), cut ? "…" : ""));
}

void Output::receive(int rank, Stream stream, std::string_view bytes) {
  Source& from = source(rank, stream);
  // A full disk must not stop the job.
  if (from.log >= 0 && !write_all(from.log, bytes) && !std::exchange(from.log_failed, true)) {
    message(fmt::format("warning: --log-dir: cannot write all of '{}': {}",
                        logs_.path(rank, stream), std::strerror(errno)));
  }
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) break;
    const std::string_view piece = bytes.substr(0, newline + 1);
    from.waiting += piece;
    print(from, from.waiting, true);
    from.waiting.clear();
    from.deadline.reset();
    if (from.line.size() <= kMaxTailLineBytes) from.line += piece.substr(0, newline);
    remember(from, from.line);
    from.line.clear();
    bytes.remove_prefix(newline + 1);
  }
  if (bytes.empty()) return;
  if (from.waiting.empty()) from.deadline = Clock::now() + kPartialDelay;
  from.waiting += bytes;
  if (from.line.size() <= kMaxTailLineBytes) from.line += bytes;
  if (from.waiting.size() >= kMaxWaitingBytes) {
    print(from, from.waiting, false);
    from.waiting.clear();
    from.deadline.reset();
  }
}

void Output::finish(int rank, Stream stream) {
  Source& from = source(rank, stream);
  // With prefixes every line is a line; without, the bytes are the program's own.
  const bool completes = !from.prefix.empty();
  if (!from.waiting.empty() || (from.open && completes)) {
    if (completes) from.waiting += '\n';
    print(from, from.waiting, completes);
    from.waiting.clear();
  }
  if (!from.line.empty()) remember(from, from.line);
  from.line.clear();
  from.deadline.reset();
}

std::optional<Clock::time_point> Output::deadline() const {
  std::optional<Clock::time_point> first;
  for (const Source& from : sources_) {
    if (from.deadline && (!first || *from.deadline < *first)) first = from.deadline;
  }
  return first;
}

void Output::flush_partial_lines(const std::function<void(int, Stream)>& read_again) {
  const auto now = Clock::now();
  const auto is_due = [&](const Source& from) { return from.deadline && *from.deadline <= now; };
  for (Source& from : sources_) {
    if (!is_due(from)) continue;
    // glaunch may be late itself, and the rest have lain there for long.
    read_again(from.rank, from.stream);
    if (!is_due(from)) continue;
    print(from, from.waiting, false);
    from.waiting.clear();
    from.deadline.reset();
  }
}

std::vector<std::string> Output::tail(int rank) const {
  const auto& tail = tails_[static_cast<std::size_t>(rank)];
  return {tail.begin(), tail.end()};
}

void Output::clear_tails() {
  for (auto& tail : tails_) tail.clear();
}

void Output::clear_tail(int rank) { tails_[static_cast<std::size_t>(rank)].clear(); }

void Output::message(std::string_view line) {
  report({escape_control_characters(line, LineEnds::keep)});
}

void Output::report(const std::vector<std::string>& lines) {
  Console& console = err_ ? *err_ : *out_;
  for (const std::string& line : lines) {
    console.write(kGlaunch, "", fmt::format("glaunch: {}\n", line), true);
  }
}

void Output::report_loss() {
  const int failure = out_->failure();
  if (failure == 0 || failure == EPIPE || err_ == nullptr) return;
  message(fmt::format("warning: cannot write all of standard output: {}", std::strerror(failure)));
}

bool Output::drained() const { return out_->drained() && (!err_ || err_->drained()); }

void Output::watch_drained(EventLoop& loop, const EventLoop::Handler& handler) {
  for (Console* console : {out_.get(), err_.get()}) {
    if (console == nullptr) continue;
    loop.watch_input(console->drained_fd(), [console, handler] {
      console->clear();
      handler();
    });
  }
}

}  // namespace gantry::launcher
