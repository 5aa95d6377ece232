// Values of JSON documents and pickles.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gantry::snapshot {

/// Index of a value in its tree.
using ValueId = std::uint32_t;

/// Lists and dictionaries over shared values. Pickles share repeated values, such as the frames of
/// a call site. Values are therefore named by index and never copied; a list may hold itself.
class JsonDocument {
 public:
  struct None {};
  using List = std::vector<ValueId>;
  using Dict = std::vector<std::pair<ValueId, ValueId>>;
  /// Whole numbers above 2^63 - 1 are std::uint64_t, all others std::int64_t.
  using Value =
      std::variant<None, bool, std::int64_t, std::uint64_t, double, std::string, List, Dict>;

  ValueId add(Value value);
  [[nodiscard]] Value& at(ValueId id) { return values_[id]; }
  [[nodiscard]] const Value& at(ValueId id) const { return values_[id]; }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

  void set_root(ValueId id) { root_ = id; }
  [[nodiscard]] ValueId root() const { return root_; }

  /// The value of `key` in a dictionary, or nullptr if there is none or `dict` is none.
  [[nodiscard]] const Value* find(const Value& dict, std::string_view key) const;
  /// The elements of a list (tuples are lists), or nullptr.
  [[nodiscard]] const List* list(const Value* value) const;
  /// Typed look-ups in a dictionary. `what` names the dictionary in the error.
  /// Throws: InvalidArgument if the key is missing or of another type.
  [[nodiscard]] std::int64_t integer(const Value& dict, std::string_view key,
                                     std::string_view what) const;
  [[nodiscard]] const std::string& text(const Value& dict, std::string_view key,
                                        std::string_view what) const;

 private:
  std::deque<Value> values_;
  ValueId root_ = 0;
};

/// Kind of a value, for messages: "a list", "a number", …
[[nodiscard]] std::string_view kind_of(const JsonDocument::Value& value);

/// Parses JSON text. Throws: InvalidArgument with the position.
[[nodiscard]] JsonDocument parse_json(std::string_view text);

}  // namespace gantry::snapshot
