#include <gantry/core/env.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/env/settings.hpp"

namespace gantry::env {

const std::vector<Variable>& variables() {
  static const auto& kVariables = *new std::vector<Variable>([] {
    std::vector<Variable> all;
    for (const Setting* setting : settings()) {
      all.push_back({setting->name(), setting->values(), setting->meaning()});
    }
    return all;
  }());
  return kVariables;
}

std::optional<std::string> get(const char* name) {
  // None in a program with more rights than its caller, who chose the environment.
  const char* value = secure_getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::int64_t parse_int(std::string_view text, std::string_view what, std::int64_t min,
                       std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < min || value > max) {
    throw InvalidArgument(std::string(what) + ": expected a whole number from " +
                          std::to_string(min) + " to " + std::to_string(max) + ", but got '" +
                          std::string(text) + "'");
  }
  return value;
}

std::size_t parse_bytes(std::string_view text, std::string_view what) {
  const auto fail = [&]() -> std::size_t {
    throw InvalidArgument(std::string(what) +
                          ": expected a byte count such as 512M or 2GiB, but got '" +
                          std::string(text) + "'");
  };
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, value);
  if (status != std::errc{}) return fail();
  std::string_view suffix(end, static_cast<std::size_t>(last - end));
  int shift = 0;
  if (!suffix.empty() && suffix != "B") {
    switch (suffix.front()) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      default:
        return fail();
    }
    suffix.remove_prefix(1);
  }
  if (!suffix.empty() && suffix != "B" && suffix != "iB") return fail();
  if (value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return fail();
  return static_cast<std::size_t>(value << shift);
}

std::optional<std::int64_t> get_int(const char* name, std::int64_t min, std::int64_t max) {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_int(*text, name, min, max);
}

std::optional<std::size_t> get_bytes(const char* name) {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_bytes(*text, name);
}

bool get_bool(const char* name, bool fallback) {
  const auto text = get(name);
  if (!text || text->empty()) return fallback;
  if (*text == "1" || *text == "true" || *text == "on" || *text == "yes") return true;
  if (*text == "0" || *text == "false" || *text == "off" || *text == "no") return false;
  throw InvalidArgument(std::string(name) +
                        ": expected 1/0, true/false, on/off or yes/no, but got '" + *text + "'");
}

}  // namespace gantry::env
