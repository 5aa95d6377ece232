#include "tools/snapshot/json_document.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"

namespace gantry::snapshot {
namespace {

// Builds the tree while the parser reads; no recursion, so depth costs nothing.
class JsonBuilder : public JsonHandler {
 public:
  explicit JsonBuilder(JsonDocument& tree) : tree_(tree) {}

  void null() override { put(JsonDocument::None{}); }
  void boolean(bool value) override { put(value); }
  void integer(std::int64_t value) override { put(value); }
  void large_integer(std::uint64_t value) override { put(value); }
  void number(double value) override { put(value); }
  void string(std::string value) override { put(std::move(value)); }
  void begin_object() override { open(JsonDocument::Dict{}); }
  void key(std::string key) override { keys_.back() = tree_.add(std::move(key)); }
  void end_object() override { close(); }
  void begin_array() override { open(JsonDocument::List{}); }
  void end_array() override { close(); }

 private:
  void put(JsonDocument::Value value) { attach(tree_.add(std::move(value))); }
  void open(JsonDocument::Value value) {
    const ValueId id = tree_.add(std::move(value));
    attach(id);
    open_.push_back(id);
    keys_.push_back(0);
  }
  void close() {
    open_.pop_back();
    keys_.pop_back();
  }
  void attach(ValueId id) {
    if (open_.empty()) {
      tree_.set_root(id);
    } else if (auto* list = std::get_if<JsonDocument::List>(&tree_.at(open_.back()))) {
      list->push_back(id);
    } else {
      std::get<JsonDocument::Dict>(tree_.at(open_.back())).emplace_back(keys_.back(), id);
    }
  }

  JsonDocument& tree_;
  std::vector<ValueId> open_;
  std::vector<ValueId> keys_;  // the key that waits for its value, per open container
};

}  // namespace

ValueId JsonDocument::add(Value value) {
  if (values_.size() >= std::numeric_limits<ValueId>::max()) {
    throw InvalidArgument("snapshot: more than 4 billion values");
  }
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

const JsonDocument::Value* JsonDocument::find(const Value& dict, std::string_view key) const {
  const auto* entries = std::get_if<Dict>(&dict);
  if (entries == nullptr) return nullptr;
  for (const auto& [name, value] : *entries) {
    const auto* text = std::get_if<std::string>(&at(name));
    if (text != nullptr && *text == key) return &at(value);
  }
  return nullptr;
}

const JsonDocument::List* JsonDocument::list(const Value* value) const {
  return value == nullptr ? nullptr : std::get_if<List>(value);
}

std::int64_t JsonDocument::integer(const Value& dict, std::string_view key,
                                   std::string_view what) const {
  const Value* value = find(dict, key);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (number == nullptr) {
    throw InvalidArgument(fmt::format("{}: expected a whole number '{}', but got {}", what, key,
                                      value == nullptr ? "none" : kind_of(*value)));
  }
  return *number;
}

const std::string& JsonDocument::text(const Value& dict, std::string_view key,
                                      std::string_view what) const {
  const Value* value = find(dict, key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) {
    throw InvalidArgument(fmt::format("{}: expected a text '{}', but got {}", what, key,
                                      value == nullptr ? "none" : kind_of(*value)));
  }
  return *text;
}

std::string_view kind_of(const JsonDocument::Value& value) {
  constexpr std::array<std::string_view, 8> kNames = {
      "None",     "a truth value", "a whole number", "a whole number of 2^63 or more",
      "a number", "a text",        "a list",         "a dictionary"};
  return kNames[value.index()];
}

JsonDocument parse_json(std::string_view text) {
  JsonDocument tree;
  JsonBuilder builder(tree);
  try {
    gantry::parse_json(text, builder);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("JSON: {}", error.what()));
  }
  return tree;
}

}  // namespace gantry::snapshot
