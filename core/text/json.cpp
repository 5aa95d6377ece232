#include "core/text/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/text/escaped_text.hpp"

namespace gantry {
namespace {

constexpr std::size_t kShownBytes = 60;  // of a value, in an error text
constexpr int kSearchedDepth = 500;      // for the place of a value

// A value as an error text shows it.
std::string shown(const Json& value) {
  if (value.size() > 0) return value.is_array() ? "[…]" : "{…}";
  std::string text = value.dump();
  if (text.size() <= kShownBytes) return text;
  std::size_t end = kShownBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

[[noreturn]] void fail(const Json& value, std::string_view expected) {
  throw JsonError(value, fmt::format("expected {}, but got {}", expected, shown(value)));
}

void append_string(std::string& out, std::string_view text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (is_plain) {
    ((out += '"') += text) += '"';
  } else {
    // "\u202e" says the same, and does not turn the text around on a terminal.
    out += nlohmann::json(text).dump(-1, ' ', has_hidden_controls(text),
                                     nlohmann::json::error_handler_t::replace);
  }
}

void break_line(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
}

// Appends all elements or members, which stand `depth` containers deep.
template <class Range, class Write>
void write_all(std::string& out, char begin, const Range& range, char end, int indent, int depth,
               Write write_one) {
  out += begin;
  const char* separator = "";
  for (const auto& one : range) {
    out += separator;
    separator = ",";
    break_line(out, indent, depth + 1);
    write_one(one);
  }
  if (!range.empty()) break_line(out, indent, depth);
  out += end;
}

// nlohmann's parser takes a null character for the end of the text, and ignores what follows it.
void refuse_null_character(std::string_view text) {
  const std::size_t at = text.find('\0');
  if (at == text.npos) return;
  const std::string_view before = text.substr(0, at);
  const std::size_t line_start = before.rfind('\n') + 1;  // 0 on the first line
  throw InvalidArgument(
      fmt::format("parse error at line {}, column {}: expected JSON text, but got a null character",
                  1 + std::ranges::count(before, '\n'), at - line_start + 1));
}

// Hands the events of nlohmann's parser to a JsonHandler.
class Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Events(JsonHandler& handler) : handler_(handler) {}

  bool null() override { return (handler_.null(), true); }
  bool boolean(bool value) override { return (handler_.boolean(value), true); }
  bool number_integer(number_integer_t value) override { return (handler_.integer(value), true); }
  bool number_unsigned(number_unsigned_t value) override {
    if (std::in_range<std::int64_t>(value)) {
      handler_.integer(static_cast<std::int64_t>(value));
    } else {
      handler_.large_integer(value);
    }
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override {
    return (handler_.number(value), true);
  }
  bool string(string_t& value) override { return (handler_.string(std::move(value)), true); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return (handler_.begin_object(), true); }
  bool key(string_t& value) override { return (handler_.key(std::move(value)), true); }
  bool end_object() override { return (handler_.end_object(), true); }
  bool start_array(std::size_t) override { return (handler_.begin_array(), true); }
  bool end_array() override { return (handler_.end_array(), true); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 7: …"
    std::string text = error.what();
    if (const auto bracket = text.find("] "); bracket != text.npos) text.erase(0, bracket + 2);
    if (!text.starts_with("parse error")) text = "parse error: " + text;
    throw InvalidArgument(text);
  }

 private:
  JsonHandler& handler_;
};

// Builds the tree of a text.
class Builder : public JsonHandler {
 public:
  explicit Builder(Json& root) { open_.push_back(&root); }

  void null() override { put({}); }
  void boolean(bool value) override { put(value); }
  void integer(std::int64_t value) override { put(value); }
  void large_integer(std::uint64_t value) override { put(value); }
  void number(double value) override { put(value); }
  void string(std::string value) override { put(std::move(value)); }
  void begin_array() override { open_.push_back(put(Json::Array())); }
  void end_array() override { open_.pop_back(); }
  void begin_object() override { open_.push_back(put(Json::Object())); }
  void key(std::string key) override { key_ = std::move(key); }
  void end_object() override { open_.pop_back(); }

 private:
  // Where the value lies now. Only the innermost container grows, so open ones stay in place.
  Json* put(Json value) { return open_.back()->append(std::move(key_), std::move(value)); }

  std::vector<Json*> open_;  // the root, which is no container yet, and the containers in it
  std::string key_;
};

// The path from `root` to `value`, or nothing.
std::optional<std::string> path_to(const Json& root, const Json* value, int depth = 0) {
  if (&root == value) return "";
  if (depth == kSearchedDepth) return std::nullopt;
  if (root.is_array()) {
    for (std::size_t i = 0; i < root.size(); ++i) {
      const auto rest = path_to(root.at(i), value, depth + 1);
      if (rest) return fmt::format("[{}]{}", i, *rest);
    }
  } else if (root.is_object()) {
    for (const auto& [key, member] : root.members()) {
      const auto rest = path_to(member, value, depth + 1);
      if (rest) return fmt::format(".{}{}", key, *rest);
    }
  }
  return std::nullopt;
}

// Moves the containers that hold something to the end of `pending`.
void take_containers(Json::Array& elements, std::vector<Json>& pending) {
  for (Json& element : elements) {
    if (element.size() > 0) pending.push_back(std::move(element));
  }
}
void take_containers(Json::Object& members, std::vector<Json>& pending) {
  for (auto& [key, member] : members) {
    if (member.size() > 0) pending.push_back(std::move(member));
  }
}

}  // namespace

Json::~Json() {
  if (size() == 0) return;
  std::vector<Json> pending;
  const auto take = [&pending](Json& json) {
    if (auto* elements = std::get_if<Array>(&json.value_)) take_containers(*elements, pending);
    if (auto* members = std::get_if<Object>(&json.value_)) take_containers(*members, pending);
  };
  take(*this);
  while (!pending.empty()) {
    Json next = std::move(pending.back());
    pending.pop_back();
    take(next);
  }
}

Json Json::object(std::initializer_list<JsonMember> members) {
  Object object;
  object.reserve(members.size());
  for (const JsonMember& member : members) {
    object.emplace_back(member.key, std::move(member.value));
  }
  return object;
}

Json Json::parse(std::string_view text) {
  Json root;
  Builder builder(root);
  parse_json(text, builder);
  return root;
}

std::optional<Json> Json::try_parse(std::string_view text) {
  try {
    return parse(text);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

void Json::write(std::string& out, int indent, int depth) const {
  if (const auto* text = std::get_if<std::string>(&value_)) {
    append_string(out, *text);
  } else if (const auto* number = std::get_if<std::int64_t>(&value_)) {
    out += fmt::format_int(*number).c_str();
  } else if (const auto* large = std::get_if<std::uint64_t>(&value_)) {
    out += fmt::format_int(*large).c_str();
  } else if (const auto* real = std::get_if<double>(&value_)) {
    out += nlohmann::json(*real).dump();
  } else if (const auto* elements = std::get_if<Array>(&value_)) {
    write_all(out, '[', *elements, ']', indent, depth,
              [&](const Json& element) { element.write(out, indent, depth + 1); });
  } else if (const auto* members = std::get_if<Object>(&value_)) {
    write_all(out, '{', *members, '}', indent, depth, [&](const auto& member) {
      append_string(out, member.first);
      out += indent < 0 ? ":" : ": ";
      member.second.write(out, indent, depth + 1);
    });
  } else if (const auto* boolean = std::get_if<bool>(&value_)) {
    out += *boolean ? "true" : "false";
  } else {
    out += "null";
  }
}

Json* Json::append(std::string key, Json value) {
  if (auto* elements = std::get_if<Array>(&value_))
    return &elements->emplace_back(std::move(value));
  if (auto* members = std::get_if<Object>(&value_)) {
    return &members->emplace_back(std::move(key), std::move(value)).second;
  }
  *this = std::move(value);
  return this;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  if (Json* const member = const_cast<Json*>(find(key))) {
    *member = std::move(value);
    return *this;
  }
  if (!is_object()) fail(*this, "an object");
  append(std::string(key), std::move(value));
  return *this;
}

Json& Json::push_back(Json element) {
  if (is_null()) value_ = Array();
  if (!is_array()) fail(*this, "an array");
  append({}, std::move(element));
  return *this;
}

std::size_t Json::size() const {
  if (const auto* elements = std::get_if<Array>(&value_)) return elements->size();
  if (const auto* members = std::get_if<Object>(&value_)) return members->size();
  return 0;
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  // The last one of a name counts.
  const auto member = std::find_if(members->rbegin(), members->rend(),
                                   [&](const auto& one) { return one.first == key; });
  return member == members->rend() ? nullptr : &member->second;
}

const Json& Json::at(std::string_view key) const {
  const Json* const member = find(key);
  if (member == nullptr) fail(*this, fmt::format("an object with a member \"{}\"", key));
  return *member;
}

const Json& Json::at(std::size_t index) const {
  const Array& all = elements();
  if (index >= all.size()) fail(*this, fmt::format("an array of more than {} elements", index));
  return all[index];
}

const Json::Array& Json::elements() const {
  const auto* elements = std::get_if<Array>(&value_);
  if (elements == nullptr) fail(*this, "an array");
  return *elements;
}

const Json::Object& Json::members() const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) fail(*this, "an object");
  return *members;
}

std::optional<std::int64_t> Json::integer() const {
  const auto* number = std::get_if<std::int64_t>(&value_);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

bool Json::as_bool() const {
  const auto* value = std::get_if<bool>(&value_);
  if (value == nullptr) fail(*this, "true or false");
  return *value;
}

double Json::as_double() const {
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*large);
  fail(*this, "a number");
}

const std::string& Json::as_string() const {
  const auto* text = std::get_if<std::string>(&value_);
  if (text == nullptr) fail(*this, "a string");
  return *text;
}

std::uint64_t Json::as_integer(std::int64_t least, std::uint64_t most) const {
  if (const auto* number = std::get_if<std::int64_t>(&value_)) {
    const auto bits = static_cast<std::uint64_t>(*number);
    if (*number >= least && (*number < 0 || bits <= most)) return bits;
  } else if (const auto* large = std::get_if<std::uint64_t>(&value_)) {
    if (*large <= most) return *large;
  } else {
    fail(*this, "an integer");
  }
  fail(*this, fmt::format("an integer from {} to {}", least, most));
}

bool operator==(const Json& a, const Json& b) {
  const bool is_mixed = a.is_number() && b.is_number() && a.is_integer() != b.is_integer();
  return is_mixed ? a.as_double() == b.as_double() : a.value_ == b.value_;
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

JsonError::JsonError(const Json& value, const std::string& problem)
    : InvalidArgument(problem), value_(&value) {}

std::string JsonError::text_in(const Json& root) const {
  const auto path = path_to(root, value_);
  return path ? fmt::format("${}: {}", *path, what()) : what();
}

void parse_json(std::string_view text, JsonHandler& handler) {
  refuse_null_character(text);
  Events events(handler);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

std::string valid_utf8(std::string_view bytes) {
  const std::string text =
      nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(text).get<std::string>();
}

}  // namespace gantry
