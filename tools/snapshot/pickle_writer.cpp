#include "tools/snapshot/pickle_writer.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include <gantry/core/error.hpp>

namespace gantry::snapshot {
namespace {

// Opcodes of pickle protocol 2, named as in Python's pickletools.
constexpr char kProto = '\x80';
constexpr char kStop = '.';
constexpr char kMark = '(';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kBinInt = 'J';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinUnicode = 'X';
constexpr char kTuple2 = '\x86';
constexpr char kBinPut = 'q';
constexpr char kLongBinPut = 'r';
constexpr char kBinGet = 'h';
constexpr char kLongBinGet = 'j';

// Length of the UTF-8 sequence at the front of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_surrogate = first == 0xED && second >= 0xA0;
  const bool is_too_large = first == 0xF4 && second >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

void PickleWriter::begin() {
  put(kProto);
  put('\x02');
}

void PickleWriter::end() { put(kStop); }

void PickleWriter::put_little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) put(static_cast<char>(value >> (8 * i) & 0xFF));
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0) return natural(static_cast<std::uint64_t>(value));
  if (value >= std::numeric_limits<std::int32_t>::min()) {
    put(kBinInt);
    put_little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    put(kLong1);
    put(8);
    put_little_endian(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::natural(std::uint64_t value) {
  if (value <= 0xFF) {
    put(kBinInt1);
    put_little_endian(value, 1);
  } else if (value <= 0xFFFF) {
    put(kBinInt2);
    put_little_endian(value, 2);
  } else if (value <= 0x7FFFFFFF) {
    put(kBinInt);
    put_little_endian(value, 4);
  } else {  // as few bytes as hold it and a sign bit of 0
    const int bytes = static_cast<int>(std::bit_width(value)) / 8 + 1;
    put(kLong1);
    put(static_cast<char>(bytes));
    put_little_endian(value, bytes < 8 ? bytes : 8);
    if (bytes == 9) put(0);
  }
}

void PickleWriter::real(double value) {
  put(kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) put(static_cast<char>(bits >> (8 * i) & 0xFF));
}

void PickleWriter::boolean(bool value) { put(value ? kNewTrue : kNewFalse); }

void PickleWriter::text(std::string_view value) {
  std::string key(value);
  if (const auto known = texts_.find(key); known != texts_.end()) return recall(known->second);
  const std::string clean = valid_utf8(value);
  if (clean.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument(
        fmt::format("pickle: expected texts of less than 4 GiB, but got {} bytes", clean.size()));
  }
  put(kBinUnicode);
  put_little_endian(clean.size(), 4);
  out_.write(clean.data(), static_cast<std::streamsize>(clean.size()));
  texts_.emplace(std::move(key), remember());
}

void PickleWriter::pair() { put(kTuple2); }
void PickleWriter::dictionary() { put(kEmptyDict); }
void PickleWriter::list() { put(kEmptyList); }
void PickleWriter::open() { put(kMark); }
void PickleWriter::set_items() { put(kSetItems); }
void PickleWriter::append_items() { put(kAppends); }

std::uint32_t PickleWriter::remember() {
  const std::uint32_t number = next_number_++;
  const bool is_short = number <= 0xFF;
  put(is_short ? kBinPut : kLongBinPut);
  put_little_endian(number, is_short ? 1 : 4);
  return number;
}

void PickleWriter::recall(std::uint32_t number) {
  const bool is_short = number <= 0xFF;
  put(is_short ? kBinGet : kLongBinGet);
  put_little_endian(number, is_short ? 1 : 4);
}

}  // namespace gantry::snapshot
