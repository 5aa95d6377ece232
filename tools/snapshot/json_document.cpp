#include "tools/snapshot/json_document.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include <gantry/core/error.hpp>

namespace gantry::snapshot {
namespace {

// Builds the tree while nlohmann reads; no recursion, so depth costs nothing.
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonBuilder(JsonDocument& tree) : tree_(tree) {}

  bool null() override { return put(JsonDocument::None{}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    // Addresses above 2^63 do not exist; as a double such a number fails where it is used.
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return put(static_cast<double>(value));
    }
    return put(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonDocument::Dict{}); }
  bool key(string_t& value) override {
    keys_.back() = tree_.add(std::move(value));
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(JsonDocument::List{}); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw InvalidArgument(fmt::format("JSON: {}", error.what()));
  }

 private:
  bool put(JsonDocument::Value value) {
    attach(tree_.add(std::move(value)));
    return true;
  }
  bool open(JsonDocument::Value value) {
    const ValueId id = tree_.add(std::move(value));
    attach(id);
    open_.push_back(id);
    keys_.push_back(0);
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
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
  constexpr std::array<std::string_view, 7> kNames = {
      "None", "a truth value", "a whole number", "a number", "a text", "a list", "a dictionary"};
  return kNames[value.index()];
}

JsonDocument parse_json(std::string_view text) {
  JsonDocument tree;
  JsonBuilder builder(tree);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder) || tree.size() == 0) {
    throw InvalidArgument("JSON: no value was found");
  }
  return tree;
}

}  // namespace gantry::snapshot
