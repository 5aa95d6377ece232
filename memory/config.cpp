#include "memory/config.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "memory/heap/size_policy.hpp"

namespace gantry::memory {
namespace {

constexpr const char* kVariable = "GANTRY_ALLOC_CONF";

double parse_share(std::string_view key, std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || !(value <= 1)) {
    throw InvalidArgument(fmt::format(
        "{}: {}: expected a number above 0 and at most 1, but got '{}'", kVariable, key, text));
  }
  return value;
}

std::size_t parse_split_limit(std::string_view key, std::string_view text) {
  constexpr std::int64_t kLeastMib = static_cast<std::int64_t>(kLargeSegmentBytes >> 20);
  const std::string what = fmt::format("{}: {}", kVariable, key);
  const std::int64_t mib = env::parse_int(text, what, kLeastMib, std::int64_t{1} << 40);
  return static_cast<std::size_t>(mib) << 20;
}

void apply(AllocConfig& config, std::string_view key, std::string_view value) {
  if (key == "backend") {
    if (value != "vmm" && value != "native" && value != "async") {
      throw InvalidArgument(fmt::format(
          "{}: backend: expected one of vmm, native, async, but got '{}'", kVariable, value));
    }
    config.backend = value;
  } else if (key == "fraction") {
    config.fraction = parse_share(key, value);
  } else if (key == "gc_threshold") {
    config.gc_threshold = parse_share(key, value);
  } else if (key == "max_split_size_mb") {
    config.max_split_bytes = parse_split_limit(key, value);
  } else {
    throw InvalidArgument(
        fmt::format("{}: expected one of the keys backend, fraction, gc_threshold, "
                    "max_split_size_mb, but got '{}'",
                    kVariable, key));
  }
}

}  // namespace

AllocConfig parse_alloc_config(std::string_view text) {
  AllocConfig config;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto colon = entry.find(':');
    if (colon == std::string_view::npos) {
      throw InvalidArgument(fmt::format("{}: expected key:value, but got '{}'", kVariable, entry));
    }
    apply(config, entry.substr(0, colon), entry.substr(colon + 1));
  }
  return config;
}

const AllocConfig& alloc_config() {
  static const AllocConfig config = parse_alloc_config(env::get(kVariable).value_or(""));
  return config;
}

}  // namespace gantry::memory
