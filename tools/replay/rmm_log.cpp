#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <unordered_map>
#include <utility>

#include <gantry/core/error.hpp>

#include "tools/replay/log_file.hpp"

namespace gantry::replay {
namespace {

enum Column { kThread, kTime, kAction, kPointer, kSize, kStream, kColumns };
using Row = std::array<std::string_view, kColumns>;

constexpr Row kHeader = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};
// RMM 0.14 wrote no threads.
constexpr std::string_view kOldHeader = "Time,Action,Pointer,Size,Stream";

[[noreturn]] void reject(std::size_t line, const std::string& why) {
  throw InvalidArgument(fmt::format("RMM log, line {}: {}", line, why));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// The columns of a line, whose first one is `first`.
Row split(std::string_view text, std::size_t line, std::size_t first) {
  Row row;
  for (std::size_t column = first; column < kColumns; ++column) {
    const std::size_t comma = text.find(',');
    const bool last = column + 1 == kColumns;
    if (last != (comma == std::string_view::npos)) {
      reject(line, fmt::format("expected {} columns, but got {}", kColumns - first,
                               last ? "more" : fmt::format("{}", column + 1 - first)));
    }
    row[column] = trimmed(text.substr(0, comma));
    if (!last) text.remove_prefix(comma + 1);
  }
  return row;
}

// Decimal, or hexadecimal behind 0x; "(nil)" is 0.
std::uint64_t number(std::string_view text, std::size_t line, std::string_view what) {
  if (text == "(nil)") return 0;
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hexadecimal ? text.substr(2) : text;
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    reject(line, fmt::format("expected a number as {}, but got '{}'", what, text));
  }
  return value;
}

// Numbers names by first appearance.
class Numbering {
 public:
  explicit Numbering(std::string_view what) : what_(what) {}
  std::uint16_t operator()(std::uint64_t name, std::size_t line) {
    const auto [found, added] =
        numbers_.try_emplace(name, static_cast<std::uint16_t>(numbers_.size()));
    if (added && numbers_.size() > std::numeric_limits<std::uint16_t>::max()) {
      reject(line, fmt::format("more than 65,534 {} are not supported", what_));
    }
    return found->second;
  }

 private:
  std::string_view what_;
  std::unordered_map<std::uint64_t, std::uint16_t> numbers_;
};

// The rows of a log, one after the other.
class Reader {
 public:
  explicit Reader(const std::string& name) {
    sequence_.name = name;
    (void)streams_(0, 0);  // the default stream is number 0, used or not
  }

  void read(std::string_view content, std::size_t line) {
    if (!has_header_) return read_header(content, line);
    const Row row = split(content, line, first_);
    if (row[kAction] == "allocate failure") return;
    const bool allocates = row[kAction] == "allocate";
    if (!allocates && row[kAction] != "free" && row[kAction] != "deallocate") {
      reject(line, fmt::format("expected the action allocate or free, but got '{}'", row[kAction]));
    }
    const std::uint64_t pointer = number(row[kPointer], line, "pointer");
    const std::uint64_t bytes = number(row[kSize], line, "size");
    const std::uint16_t thread =
        threads_(first_ == kThread ? number(row[kThread], line, "thread") : 0, line);
    const std::uint16_t stream = streams_(number(row[kStream], line, "stream"), line);
    if (bytes == 0) return;  // gives no memory
    const auto found = live_.find(pointer);
    if (allocates) {
      if (found != live_.end()) {
        reject(line, fmt::format("{} is allocated, but was not freed", row[kPointer]));
      }
      live_[pointer] = {sequence_.allocate(bytes, stream, thread), stream};
    } else if (found == live_.end()) {
      ++sequence_.unmatched_frees;
    } else {
      sequence_.free(found->second.block, found->second.stream, thread);
      live_.erase(found);
    }
  }
  [[nodiscard]] bool has_header() const { return has_header_; }
  void skip_incomplete() { ++sequence_.incomplete_lines; }
  [[nodiscard]] AllocationSequence take() { return std::move(sequence_); }

 private:
  struct Live {
    std::uint32_t block;
    std::uint16_t stream;
  };

  void read_header(std::string_view content, std::size_t line) {
    first_ = content.starts_with(kHeader[kTime]) ? kTime : kThread;
    const Row row = split(content, line, first_);
    if (!std::equal(row.begin() + first_, row.end(), kHeader.begin() + first_)) {
      reject(line, "expected the header Thread,Time,Action,Pointer,Size,Stream");
    }
    has_header_ = true;
  }

  AllocationSequence sequence_;
  std::unordered_map<std::uint64_t, Live> live_;
  Numbering threads_{"threads"};
  Numbering streams_{"streams"};
  Column first_ = kThread;
  bool has_header_ = false;
};

}  // namespace

bool is_rmm_log(std::string_view text) {
  return text.starts_with("Thread,") || text.starts_with(kOldHeader);
}

bool is_rmm_debug_log(std::string_view text) {
  // "[  6732][10:31:05:541938][info  ] ----- RMM LOG BEGIN [PTDS DISABLED] -----"
  const std::string_view first = text.substr(0, text.find('\n'));
  return first.starts_with('[') && first.find("RMM LOG BEGIN") != first.npos;
}

AllocationSequence read_rmm_log(std::string_view text, const std::string& name) {
  Reader reader(name);
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const bool is_cut = end == text.npos && reader.has_header();
    const std::string_view content = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (content.empty()) continue;
    try {
      reader.read(content, line);
    } catch (const InvalidArgument&) {
      // The program ended while it wrote its last line.
      if (!is_cut) throw;
      reader.skip_incomplete();
    }
  }
  if (!reader.has_header()) {
    throw InvalidArgument("RMM log: expected a header, but the file is empty");
  }
  return reader.take();
}

}  // namespace gantry::replay
