#include "memory/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
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

std::size_t parse_mib(std::string_view key, std::string_view text, std::int64_t least) {
  const std::string what = fmt::format("{}: {}", kVariable, key);
  const std::int64_t mib = env::parse_int(text, what, least, std::int64_t{1} << 40);
  return static_cast<std::size_t>(mib) << 20;
}

bool parse_switch(std::string_view key, std::string_view text) {
  if (text == "True" || text == "true") return true;
  if (text == "False" || text == "false") return false;
  throw InvalidArgument(
      fmt::format("{}: {}: expected True or False, but got '{}'", kVariable, key, text));
}

// What the variable says about the backend. torch has two keys for it.
struct BackendChoice {
  std::string name;
  std::optional<bool> expandable_segments;

  // torch's expandable segments are vmm, also of its backend native; its backend native without
  // them is native.
  [[nodiscard]] std::string resolved(std::string_view fallback) const {
    if (name == "async" || !expandable_segments) return name.empty() ? std::string(fallback) : name;
    if (*expandable_segments) return "vmm";
    if (name == "vmm") {
      throw InvalidArgument(fmt::format(
          "{}: expandable_segments: expected True with backend vmm, but got 'False'", kVariable));
    }
    return "native";
  }
};

void parse_backend(BackendChoice& choice, std::string_view value) {
  if (value == "cudaMallocAsync") value = "async";
  if (value != "vmm" && value != "native" && value != "async") {
    throw InvalidArgument(
        fmt::format("{}: backend: expected one of vmm, native, async, cudaMallocAsync, but got "
                    "'{}'",
                    kVariable, value));
  }
  choice.name = value;
}

void apply(AllocConfig& config, BackendChoice& backend, std::string_view key,
           std::string_view value) {
  constexpr int kMostThreads = 128;
  if (key == "backend") {
    parse_backend(backend, value);
  } else if (key == "expandable_segments") {
    backend.expandable_segments = parse_switch(key, value);
  } else if (key == "fraction" || key == "per_process_memory_fraction") {
    config.fraction = parse_share(key, value);
  } else if (key == "gc_threshold" || key == "garbage_collection_threshold") {
    config.gc_threshold = parse_share(key, value);
  } else if (key == "max_split_size_mb") {
    constexpr auto kLeast = static_cast<std::int64_t>(kLargeSegmentBytes >> 20);
    config.max_split_bytes = parse_mib(key, value, kLeast);
  } else if (key == "pinned_use_cuda_host_register") {
    config.pinned_register = parse_switch(key, value);
  } else if (key == "pinned_num_register_threads") {
    const std::string what = fmt::format("{}: {}", kVariable, key);
    config.pinned_threads = static_cast<int>(env::parse_int(value, what, 1, kMostThreads));
  } else if (key == "pinned_reserve_segment_size_mb") {
    config.pinned_reserve_bytes = parse_mib(key, value, 1);
  } else {
    throw InvalidArgument(fmt::format(
        "{}: expected one of the keys backend, expandable_segments, fraction, gc_threshold, "
        "max_split_size_mb, pinned_num_register_threads, pinned_reserve_segment_size_mb, "
        "pinned_use_cuda_host_register, but got '{}'",
        kVariable, key));
  }
}

}  // namespace

AllocConfig parse_alloc_config(std::string_view text) {
  AllocConfig config;
  BackendChoice backend;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto colon = entry.find(':');
    if (colon == std::string_view::npos) {
      throw InvalidArgument(fmt::format("{}: expected key:value, but got '{}'", kVariable, entry));
    }
    apply(config, backend, entry.substr(0, colon), entry.substr(colon + 1));
  }
  config.backend = backend.resolved(config.backend);
  return config;
}

const AllocConfig& alloc_config() {
  static const AllocConfig config = parse_alloc_config(env::get(kVariable).value_or(""));
  return config;
}

}  // namespace gantry::memory
