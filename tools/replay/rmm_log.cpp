#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <unordered_map>

#include <gantry/core/error.hpp>

#include "tools/replay/log_file.hpp"

namespace gantry::replay {
namespace {

enum Column { kThread, kTime, kAction, kPointer, kSize, kStream, kColumns };
using Row = std::array<std::string_view, kColumns>;

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

Row split(std::string_view text, std::size_t line) {
  Row row;
  for (std::size_t column = 0; column < kColumns; ++column) {
    const std::size_t comma = text.find(',');
    const bool last = column + 1 == kColumns;
    if (last != (comma == std::string_view::npos)) {
      reject(line, fmt::format("expected {} columns, but got {}", int{kColumns},
                               last ? "more" : fmt::format("{}", column + 1)));
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

struct Live {
  std::uint32_t block;
  std::uint16_t stream;
};

}  // namespace

AllocationSequence read_rmm_log(std::string_view text, const std::string& name) {
  AllocationSequence sequence;
  sequence.name = name;
  std::unordered_map<std::uint64_t, Live> live;
  Numbering threads("threads");
  Numbering streams("streams");
  (void)streams(0, 0);  // the default stream is number 0, used or not
  bool header = true;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (content.empty()) continue;
    const Row row = split(content, line);
    if (header) {
      constexpr Row kHeader = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};
      if (row != kHeader)
        reject(line, "expected the header Thread,Time,Action,Pointer,Size,Stream");
      header = false;
      continue;
    }
    if (row[kAction] == "allocate failure") continue;
    const bool allocates = row[kAction] == "allocate";
    if (!allocates && row[kAction] != "free") {
      reject(line, fmt::format("expected the action allocate or free, but got '{}'", row[kAction]));
    }
    const std::uint64_t pointer = number(row[kPointer], line, "pointer");
    const std::uint64_t bytes = number(row[kSize], line, "size");
    const std::uint16_t thread = threads(number(row[kThread], line, "thread"), line);
    const std::uint16_t stream = streams(number(row[kStream], line, "stream"), line);
    if (bytes == 0) continue;  // gives no memory
    const auto found = live.find(pointer);
    if (allocates) {
      if (found != live.end()) {
        reject(line, fmt::format("{} is allocated, but was not freed", row[kPointer]));
      }
      live[pointer] = {sequence.allocate(bytes, stream, thread), stream};
    } else if (found == live.end()) {
      ++sequence.unmatched_frees;
    } else {
      sequence.free(found->second.block, found->second.stream, thread);
      live.erase(found);
    }
  }
  if (header) throw InvalidArgument("RMM log: expected a header, but the file is empty");
  return sequence;
}

}  // namespace gantry::replay
