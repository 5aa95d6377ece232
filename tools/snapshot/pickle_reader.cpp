#include "tools/snapshot/pickle_reader.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <unordered_map>

#include <gantry/core/error.hpp>

namespace gantry::snapshot {
namespace {

constexpr std::uint8_t kMinProtocol = 2;
constexpr std::uint8_t kMaxProtocol = 5;

// The opcodes of data, as the pickle module names them.
enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kAppend = 'a',
  kAppends = 'e',
  kDict = 'd',
  kEmptyDict = '}',
  kList = 'l',
  kEmptyList = ']',
  kSetItem = 's',
  kSetItems = 'u',
  kTuple = 't',
  kEmptyTuple = ')',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

// Names of the opcodes that make objects or run code; empty for any other.
std::string_view dangerous_name(std::uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x81:
      return "NEWOBJ";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x93:
      return "STACK_GLOBAL";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return {};
  }
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  JsonDocument read() {
    for (;;) {
      start_ = position_;
      const std::uint8_t opcode = byte();
      if (opcode == kStop) break;
      step(opcode);
    }
    tree_.set_root(pop());
    return std::move(tree_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InvalidArgument(fmt::format("pickle: {} at byte {}", why, start_));
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - position_) fail("the file ends within an entry");
    const std::string_view taken = bytes_.substr(position_, static_cast<std::size_t>(count));
    position_ += static_cast<std::size_t>(count);
    return taken;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint64_t little_endian(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view raw = take(count);
    for (std::size_t i = 0; i < count; ++i) {
      value |= std::uint64_t{static_cast<std::uint8_t>(raw[i])} << (8 * i);
    }
    return value;
  }
  JsonDocument::Value long_integer(std::uint64_t count) {
    std::string_view raw = take(count);
    // Addresses need a ninth byte for the sign.
    while (raw.size() > 8 && raw.back() == (raw[raw.size() - 2] < 0 ? '\xff' : '\0')) {
      raw.remove_suffix(1);
    }
    // Torch writes line 2^64 - 1 for a frame without one.
    const bool is_above = raw.size() == 9 && raw.back() == '\0';
    if (is_above) raw.remove_suffix(1);
    if (raw.size() > 8) fail("a whole number of more than 64 bits");
    std::uint64_t value = !raw.empty() && raw.back() < 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value &= ~(std::uint64_t{0xff} << (8 * i));
      value |= std::uint64_t{static_cast<std::uint8_t>(raw[i])} << (8 * i);
    }
    if (is_above) return value;
    return static_cast<std::int64_t>(value);
  }

  void push(JsonDocument::Value value) { stack_.push_back(tree_.add(std::move(value))); }
  ValueId pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const ValueId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  ValueId top() const {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // Takes the values pushed since the last mark.
  JsonDocument::List pop_mark() {
    if (marks_.empty()) fail("a mark is missing");
    JsonDocument::List values(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                              stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }

  void append(const JsonDocument::List& values) {
    auto* list = std::get_if<JsonDocument::List>(&tree_.at(top()));
    if (list == nullptr) fail("elements are added to something that is no list");
    list->insert(list->end(), values.begin(), values.end());
  }
  static JsonDocument::Dict pairs(const JsonDocument::List& values) {
    JsonDocument::Dict dict;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
      dict.emplace_back(values[i], values[i + 1]);
    }
    return dict;
  }
  void set_items(const JsonDocument::List& values) {
    auto* dict = std::get_if<JsonDocument::Dict>(&tree_.at(top()));
    if (dict == nullptr || values.size() % 2 != 0) {
      fail("entries are added to something that is no dictionary");
    }
    const JsonDocument::Dict added = pairs(values);
    dict->insert(dict->end(), added.begin(), added.end());
  }
  void tuple(std::size_t count) {
    JsonDocument::List values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    push(std::move(values));
  }
  void put(std::uint64_t slot) { memo_[slot] = top(); }
  void get(std::uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail(fmt::format("memo entry {} does not exist", slot));
    stack_.push_back(found->second);
  }
  void text(std::uint64_t length) { push(std::string(take(length))); }

  void step(std::uint8_t opcode);

  std::string_view bytes_;
  std::size_t position_ = 0;
  std::size_t start_ = 0;  // of the current opcode
  JsonDocument tree_;
  std::vector<ValueId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, ValueId> memo_;
};

void Reader::step(std::uint8_t opcode) {
  switch (opcode) {
    case kProto:
      if (const std::uint8_t protocol = byte();
          protocol < kMinProtocol || protocol > kMaxProtocol) {
        fail(fmt::format("expected protocol 2 to 5, but got {}", protocol));
      }
      return;
    case kFrame:
      (void)little_endian(8);
      return;
    case kMark:
      return marks_.push_back(stack_.size());
    case kPop:
      (void)pop();
      return;
    case kPopMark:
      (void)pop_mark();
      return;
    case kDup:
      return stack_.push_back(top());
    case kNone:
      return push(JsonDocument::None{});
    case kNewTrue:
      return push(true);
    case kNewFalse:
      return push(false);
    case kBinFloat: {
      std::uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8 | static_cast<std::uint8_t>(c);
      return push(std::bit_cast<double>(bits));
    }
    case kBinInt:
      return push(std::int64_t{static_cast<std::int32_t>(little_endian(4))});
    case kBinInt1:
      return push(static_cast<std::int64_t>(little_endian(1)));
    case kBinInt2:
      return push(static_cast<std::int64_t>(little_endian(2)));
    case kLong1:
      return push(long_integer(little_endian(1)));
    case kLong4:
      return push(long_integer(little_endian(4)));
    case kShortBinString:
    case kShortBinUnicode:
    case kShortBinBytes:
      return text(little_endian(1));
    case kBinString:
    case kBinUnicode:
    case kBinBytes:
      return text(little_endian(4));
    case kBinUnicode8:
    case kBinBytes8:
    case kByteArray8:
      return text(little_endian(8));
    case kEmptyList:
    case kEmptyTuple:
    case kEmptySet:
      return push(JsonDocument::List{});
    case kEmptyDict:
      return push(JsonDocument::Dict{});
    case kList:
    case kTuple:
    case kFrozenSet:
      return push(pop_mark());
    case kTuple1:
      return tuple(1);
    case kTuple2:
      return tuple(2);
    case kTuple3:
      return tuple(3);
    case kDict: {
      const JsonDocument::List values = pop_mark();
      if (values.size() % 2 != 0) fail("a dictionary's last key has no value");
      return push(pairs(values));
    }
    case kAppend: {
      const ValueId value = pop();
      return append({value});
    }
    case kAppends:
    case kAddItems: {
      const JsonDocument::List values = pop_mark();
      return append(values);
    }
    case kSetItem: {
      const ValueId value = pop();
      const ValueId key = pop();
      return set_items({key, value});
    }
    case kSetItems: {
      const JsonDocument::List values = pop_mark();
      return set_items(values);
    }
    case kBinPut:
      return put(little_endian(1));
    case kLongBinPut:
      return put(little_endian(4));
    case kMemoize:
      return put(memo_.size());
    case kBinGet:
      return get(little_endian(1));
    case kLongBinGet:
      return get(little_endian(4));
    default:
      break;
  }
  if (const std::string_view name = dangerous_name(opcode); !name.empty()) {
    fail(fmt::format("opcode {} would make an object or run code; a snapshot holds plain data only",
                     name));
  }
  fail(fmt::format("unknown opcode 0x{:02x}", opcode));
}

}  // namespace

bool is_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<std::uint8_t>(bytes[0]) == kProto &&
         static_cast<std::uint8_t>(bytes[1]) >= kMinProtocol &&
         static_cast<std::uint8_t>(bytes[1]) <= kMaxProtocol;
}

JsonDocument read_pickle(std::string_view bytes) {
  if (!is_pickle(bytes)) {
    throw InvalidArgument(
        "pickle: expected a pickle of protocol 2 to 5, but the file begins otherwise");
  }
  return Reader(bytes).read();
}

}  // namespace gantry::snapshot
