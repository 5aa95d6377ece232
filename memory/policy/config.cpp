#include "memory/policy/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/parse_number.hpp>

#include "memory/policy/size_policy.hpp"

namespace gantry::memory {
namespace {

constexpr const char* kVariable = "GANTRY_ALLOC_CONF";

[[noreturn]] void reject(std::string_view key, std::string_view expected, std::string_view value) {
  throw InvalidArgument(
      fmt::format("{}: {}: expected {}, but got '{}'", kVariable, key, expected, value));
}

double parse_share(std::string_view key, std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || !(value <= 1)) {
    reject(key, "a number above 0 and at most 1", text);
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
  reject(key, "True or False", text);
}

// What the variable says about the backend. torch has two keys for it.
struct BackendChoice {
  const Backend* named = nullptr;
  std::optional<bool> expandable_segments;

  // torch's expandable segments are vmm, also of its backend native; its backend native without
  // them is native.
  [[nodiscard]] const Backend* resolved(const Backend* fallback) const {
    if (!expandable_segments || (named != nullptr && named->is_of_driver)) {
      return named == nullptr ? fallback : named;
    }
    if (*expandable_segments) return find_backend("vmm");
    if (named != nullptr && named->maps_chunks) {
      reject("expandable_segments", "True with backend vmm", "False");
    }
    return find_backend("native");
  }
};

// "vmm, native, async, cudaMallocAsync".
std::string backend_names() {
  std::string names;
  for (const Backend& backend : kBackends) {
    for (const std::string_view name : {backend.name, backend.of_torch}) {
      if (!name.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    }
  }
  return names;
}

void parse_backend(BackendChoice& choice, std::string_view value) {
  choice.named = find_backend(value);
  if (choice.named != nullptr) return;
  reject("backend", "one of " + backend_names(), value);
}

// "4", or "[256:1,512:2,>:4]": powers of two, for all sizes or for sizes in MiB.
void check_divisions(std::string_view key, std::string_view text) {
  const auto fail = [&] {
    reject(key, "a power of two such as 4, or a list such as [256:1,>:4]", text);
  };
  const auto is_power = [](std::string_view number) {
    std::uint64_t value = 0;
    const char* const end = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), end, value);
    return error == std::errc() && stop == end && std::has_single_bit(value);
  };
  if (!text.starts_with('[')) {
    if (!is_power(text)) fail();
    return;
  }
  if (!text.ends_with(']')) fail();
  std::string_view list = text.substr(1, text.size() - 2);
  do {
    const std::string_view entry = list.substr(0, list.find(','));
    const auto colon = entry.find(':');
    if (colon == std::string_view::npos) fail();
    const std::string_view size = entry.substr(0, colon);
    if ((size != ">" && !is_power(size)) || !is_power(entry.substr(colon + 1))) fail();
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  } while (!list.empty());
}

// The first entry of a list whose values may be lists in brackets.
std::string_view first_entry(std::string_view text) {
  const auto comma = text.find(',');
  const auto open = text.find('[');
  if (open == std::string_view::npos || open > comma) return text.substr(0, comma);
  const auto close = text.find(']', open);
  return close == std::string_view::npos ? text : text.substr(0, text.find(',', close));
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
  } else if (key == "roundup_power2_divisions") {
    // A free block serves requests of any smaller size here, so that rounding saves nothing.
    check_divisions(key, value);
    config.without_effect.emplace_back(key);
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

AllocConfig parse_alloc_config(std::string_view value) {
  std::string unspaced(value);
  std::erase(unspaced, ' ');  // as torch does
  std::string_view text = unspaced;
  AllocConfig config;
  BackendChoice backend;
  while (!text.empty()) {
    const std::string_view entry = first_entry(text);
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
  static const auto& config = *new AllocConfig([] {
    const std::optional<std::string> text = env::get(kVariable);
    AllocConfig parsed = parse_alloc_config(text.value_or(""));
    for (const std::string& key : parsed.without_effect) {
      logging::warn(fmt::format("{}: {} has no effect: sizes are not rounded up", kVariable, key));
    }
    for (const char* const of_torch : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
      if (text || !env::get(of_torch)) continue;
      logging::warn(fmt::format("{} is set, which gantry does not read; {} takes torch's keys",
                                of_torch, kVariable));
      break;
    }
    return parsed;
  }());
  return config;
}

}  // namespace gantry::memory
