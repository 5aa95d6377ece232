// Python's pickle format, as far as plain data needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>

namespace gantry::snapshot {

/// Writes one value in pickle protocol 2: begin(), the value, end().
///
/// A text is written once and named by number after that. Every reader of protocol 2 takes the
/// result, also small ones: it uses no classes, and no list is appended to by more than
/// kBatch elements at once.
class PickleWriter {
 public:
  static constexpr std::size_t kBatch = 1000;

  explicit PickleWriter(std::ostream& out) : out_(out) {}

  void begin();
  void end();

  void integer(std::int64_t value);
  void natural(std::uint64_t value);
  void real(double value);
  void boolean(bool value);
  /// Bytes that are no UTF-8 become U+FFFD.
  void text(std::string_view value);
  /// Joins the two values before it to a tuple.
  void pair();

  /// An empty dictionary; between open() and set_items() its keys and values in turn.
  void dictionary();
  /// An empty list; between open() and append_items() its elements.
  void list();
  void open();
  void set_items();
  void append_items();

  /// A list of write(element) for each element of a range.
  template <class Range, class Write>
  void list_of(const Range& range, Write&& write) {
    list();
    std::size_t count = 0;
    for (const auto& element : range) {
      if (count % kBatch == 0) {
        if (count != 0) append_items();
        open();
      }
      write(element);
      ++count;
    }
    if (count != 0) append_items();
  }

  /// A number by which recall() writes the last value again: the reader gets the same object.
  [[nodiscard]] std::uint32_t remember();
  void recall(std::uint32_t number);

 private:
  void put(char byte) { out_.put(byte); }
  void put_little_endian(std::uint64_t value, int bytes);

  std::ostream& out_;
  std::uint32_t next_number_ = 0;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

/// `text` with U+FFFD in place of every byte that is no UTF-8.
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace gantry::snapshot
