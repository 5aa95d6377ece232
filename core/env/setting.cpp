#include "core/env/setting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry::env {
namespace {

constexpr std::string_view kDefaultMark = " (";

// "auto, tcp or mpi".
std::string list_of(const std::vector<std::string_view>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

}  // namespace

std::string Setting::text() const { return env::get(name_).value_or(""); }

void TextSetting::check() const {
  if (checks_ == nullptr) return;
  if (const std::string value = text(); !value.empty()) checks_(name(), value);
}

std::optional<std::int64_t> NumberSetting::get() const { return get_int(name(), least_, most_); }

std::optional<std::size_t> BytesSetting::get() const { return get_bytes(name()); }

bool SwitchSetting::get() const { return get_bool(name(), fallback_); }

std::vector<std::string_view> ChoiceSetting::choices() const {
  std::vector<std::string_view> words;
  std::string_view rest = values().substr(0, values().find(kDefaultMark));
  for (;;) {
    const std::size_t end = rest.find('|');
    words.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return words;
    rest.remove_prefix(end + 1);
  }
}

std::string ChoiceSetting::get() const {
  const std::string value = text();
  if (value.empty()) {
    const std::size_t mark = values().find(kDefaultMark) + kDefaultMark.size();
    return std::string(values().substr(mark, values().size() - mark - 1));
  }
  const std::vector<std::string_view> words = choices();
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  throw InvalidArgument(
      fmt::format("{}: expected {}, but got '{}'", name(), list_of(words), value));
}

}  // namespace gantry::env
