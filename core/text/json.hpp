// Values of JSON texts. The parser is compiled once, in json.cpp: its headers take seconds.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gantry/core/error.hpp>

namespace gantry {

struct JsonMember;

/// A JSON value. Objects keep the order in which their members were added.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  ///< null
  Json(std::nullptr_t) {}
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  /// A number up to 2^63 - 1 is signed, whatever its type was, so that equal numbers are equal.
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>) Json(T value) {
    if (std::in_range<std::int64_t>(value)) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }
  Json(double value) : value_(value) {}  ///< dump() writes infinite values and nan as null
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Array elements) : value_(std::move(elements)) {}
  Json(Object members) : value_(std::move(members)) {}
  template <class T>
  requires(!std::same_as<T, Json>) Json(const std::vector<T>& elements)
      : value_(Array(elements.begin(), elements.end())) {}
  template <class T>
  Json(const std::map<std::string, T>& members) : value_(Object(members.begin(), members.end())) {}
  template <class T>
  Json(const std::optional<T>& value) {
    if (value) *this = Json(*value);
  }

  Json(const Json&) = default;
  Json(Json&&) noexcept = default;
  Json& operator=(const Json&) = default;
  Json& operator=(Json&&) noexcept = default;
  ~Json();  ///< does not recurse: texts of others may be nested to any depth

  [[nodiscard]] static Json array(std::initializer_list<Json> elements = {}) {
    return Json(Array(elements));
  }
  /// `Json::object({{"rank", 3}, {"host", name}})`. Values are moved out of the list.
  [[nodiscard]] static Json object(std::initializer_list<JsonMember> members = {});

  /// Parses a text. The last of several members with one name counts.
  /// Throws: InvalidArgument, "parse error at line 3, column 7: …".
  [[nodiscard]] static Json parse(std::string_view text);
  /// The value of a text, or nothing if it is no JSON.
  [[nodiscard]] static std::optional<Json> try_parse(std::string_view text);

  /// The text: on one line, or with `indent` spaces for each level. Bytes of strings that are no
  /// UTF-8 become U+FFFD.
  [[nodiscard]] std::string dump(int indent = -1) const;

  /// Appends an element to an array, or a member to an object without a look for its name. Any
  /// other value is replaced. Returns the value's place.
  Json* append(std::string key, Json value);
  /// Sets a member of an object, in its old place if it is there. A null value becomes an object.
  Json& set(std::string_view key, Json value);
  /// Adds an element to an array. A null value becomes an array.
  Json& push_back(Json element);

  [[nodiscard]] bool is_null() const { return holds<std::monostate>(); }
  [[nodiscard]] bool is_bool() const { return holds<bool>(); }
  [[nodiscard]] bool is_integer() const { return holds<std::int64_t>() || holds<std::uint64_t>(); }
  [[nodiscard]] bool is_number() const { return is_integer() || holds<double>(); }
  [[nodiscard]] bool is_string() const { return holds<std::string>(); }
  [[nodiscard]] bool is_array() const { return holds<Array>(); }
  [[nodiscard]] bool is_object() const { return holds<Object>(); }

  /// Number of elements or members; 0 for other values.
  [[nodiscard]] std::size_t size() const;
  /// The member, or nullptr if there is none or this is no object.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Throws: JsonError if the value is of another type or has no such member or element.
  [[nodiscard]] const Json& at(std::string_view key) const;
  [[nodiscard]] const Json& at(std::size_t index) const;
  [[nodiscard]] const Array& elements() const;
  [[nodiscard]] const Object& members() const;

  /// The value if it is an integer up to 2^63 - 1.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// The value as bool, a number, a std::string, a std::vector, a std::pair (an array of two) or a
  /// std::map. Integers are numbers of any type that holds them.
  /// Throws: JsonError if it is none.
  template <class T>
  [[nodiscard]] T as() const {
    return read(static_cast<T*>(nullptr));
  }
  /// The member as T, or `fallback` if there is none. Throws: JsonError if it is no T.
  template <class T>
  [[nodiscard]] T value_or(std::string_view key, T fallback) const {
    const Json* const member = find(key);
    return member == nullptr ? std::move(fallback) : member->as<T>();
  }

  friend bool operator==(const Json& a, const Json& b);
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  template <class T>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  void write(std::string& out, int indent, int depth) const;
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] double as_double() const;
  [[nodiscard]] const std::string& as_string() const;
  /// The integer modulo 2^64, if it lies between these.
  [[nodiscard]] std::uint64_t as_integer(std::int64_t least, std::uint64_t most) const;

  [[nodiscard]] bool read(const bool*) const { return as_bool(); }
  [[nodiscard]] std::string read(const std::string*) const { return as_string(); }
  template <std::floating_point T>
  [[nodiscard]] T read(const T*) const {
    return static_cast<T>(as_double());
  }
  template <std::integral T>
  [[nodiscard]] T read(const T*) const {
    using Limits = std::numeric_limits<T>;
    return static_cast<T>(as_integer(std::int64_t{Limits::min()}, std::uint64_t{Limits::max()}));
  }
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::vector<T>*) const {
    std::vector<T> result;
    for (const Json& element : elements()) result.push_back(element.as<T>());
    return result;
  }
  template <class A, class B>
  [[nodiscard]] std::pair<A, B> read(const std::pair<A, B>*) const {
    return {at(0).as<A>(), at(1).as<B>()};
  }
  template <class T>
  [[nodiscard]] std::map<std::string, T> read(const std::map<std::string, T>*) const {
    std::map<std::string, T> result;
    for (const auto& [key, value] : members()) result.insert_or_assign(key, value.template as<T>());
    return result;
  }

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

/// A member of an object to be made.
struct JsonMember {
  std::string_view key;
  mutable Json value;
};

/// A value that is not what its reader expects: "expected an integer, but got null".
class JsonError : public InvalidArgument {
 public:
  JsonError(const Json& value, const std::string& problem);
  /// The text with the place of the value in its document: "$.rows[2].bytes: expected an integer,
  /// but got null". The text alone if `root` does not hold the value.
  [[nodiscard]] std::string text_in(const Json& root) const;

 private:
  const Json* value_;
};

/// Returns `read(root)`; its errors about values of `root` name their places.
template <class Read>
auto read_json(const Json& root, Read&& read) {
  try {
    return read(root);
  } catch (const JsonError& error) {
    throw InvalidArgument(error.text_in(root));
  }
}

/// Receives the values of a text one after the other, containers before what they hold.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  virtual void large_integer(std::uint64_t value) = 0;  ///< above 2^63 - 1
  virtual void number(double value) = 0;
  virtual void string(std::string value) = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string key) = 0;
  virtual void end_object() = 0;
};

/// Parses a text without a tree and without recursion. Throws: as Json::parse.
void parse_json(std::string_view text, JsonHandler& handler);

/// `bytes` as UTF-8: what is none becomes U+FFFD.
[[nodiscard]] std::string valid_utf8(std::string_view bytes);

}  // namespace gantry
