#include <gantry/machine/visible_devices.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>

namespace gantry {

namespace {

/// Note [CUDA_VISIBLE_DEVICES]
/// The CUDA 13.0 driver has these rules (tests/device/data holds its answers). The first
/// characters choose the kind: "GPU-" and "MIG-" select UUID prefixes, anything else ordinals.
/// All tokens of a list must be of one kind. A token that names no device ends the list; the tokens
/// before it remain valid. If a device is named twice before that end, the driver reports an
/// invalid device.
enum class Kind { ordinal, gpu, mig };

/// The meaning of one token: a device, or nothing for a reason.
struct Match {
  std::optional<int> device;
  std::string reason;
};

constexpr std::string_view kAgain = "a second time";

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// As strtol: spaces, one sign, digits; what follows the digits is ignored.
Match match_ordinal(std::string_view token, int count) {
  std::size_t at = 0;
  while (at < token.size() && is_space(token[at])) ++at;
  bool negative = false;
  if (at < token.size() && (token[at] == '+' || token[at] == '-')) negative = token[at++] == '-';
  if (at == token.size() || !is_digit(token[at])) return {std::nullopt, "not a number"};
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  std::int64_t ordinal = 0;
  for (; at < token.size() && is_digit(token[at]); ++at) {
    ordinal = std::min(kLimit, ordinal * 10 + (token[at] - '0'));
  }
  if (negative && ordinal != 0) return {std::nullopt, "a negative number ends the list"};
  if (ordinal >= count) {
    return {std::nullopt, fmt::format("there are only {} devices", count)};
  }
  return {static_cast<int>(ordinal), {}};
}

// Digits match in either case. The token begins with "GPU-" or "MIG-", as match() has seen.
bool has_prefix(std::string_view uuid, std::string_view token) {
  return token.size() <= uuid.size() &&
         std::equal(token.begin(), token.end(), uuid.begin(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

Match match_uuid(std::string_view token, std::span<const DeviceIdentity> all) {
  std::optional<int> found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!has_prefix(all[i].uuid, token)) continue;
    if (found) return {std::nullopt, "more than one device has a UUID that begins so"};
    found = static_cast<int>(i);
  }
  if (!found) return {std::nullopt, "no device has a UUID that begins so"};
  return {found, {}};
}

Kind kind_of(std::string_view text) {
  if (text.starts_with("GPU-")) return Kind::gpu;
  if (text.starts_with("MIG-")) return Kind::mig;
  return Kind::ordinal;
}

Match match(std::string_view token, Kind kind, std::span<const DeviceIdentity> all) {
  if (token.empty()) return {std::nullopt, "an empty entry ends the list"};
  if (kind == Kind::ordinal) return match_ordinal(token, static_cast<int>(all.size()));
  if (kind_of(token) != kind) {
    return {std::nullopt, kind == Kind::gpu ? "expected GPU-…, as in the first entry"
                                            : "expected MIG-…, as in the first entry"};
  }
  return match_uuid(token, all);
}

std::vector<std::string_view> split(std::string_view value) {
  std::vector<std::string_view> tokens;
  if (value.empty()) return tokens;
  for (std::size_t begin = 0;;) {
    const auto comma = value.find(',', begin);
    tokens.push_back(value.substr(begin, comma - begin));
    if (comma == std::string_view::npos) break;
    begin = comma + 1;
  }
  // A comma at the end hides nothing.
  if (tokens.size() > 1 && tokens.back().empty()) tokens.pop_back();
  return tokens;
}

}  // namespace

VisibleDevices parse_visible_devices(std::string_view value, std::span<const DeviceIdentity> all) {
  VisibleDevices result;
  const Kind kind = kind_of(value);
  bool ended = false;
  for (const std::string_view token : split(value)) {
    if (ended) {
      result.dropped.push_back({std::string(token), "the list ended before it"});
      continue;
    }
    const Match found = match(token, kind, all);
    if (!found.device) {
      result.dropped.push_back({std::string(token), found.reason});
      ended = true;
      continue;
    }
    if (std::find(result.visible.begin(), result.visible.end(), *found.device) !=
        result.visible.end()) {
      return {.visible = {},
              .dropped = {
                  {std::string(token), fmt::format("names device {} {}", *found.device, kAgain)}}};
    }
    if (kind == Kind::mig && !result.visible.empty()) {
      result.dropped.push_back({std::string(token), "a process sees one MIG device only"});
      continue;
    }
    result.visible.push_back(*found.device);
  }
  return result;
}

bool VisibleDevices::invalid() const noexcept {
  return dropped.size() == 1 && dropped.front().reason.ends_with(kAgain);
}

bool is_valid_device_order(std::string_view value) noexcept {
  return value.empty() || value == "FASTEST_FIRST" || value == "PCI_BUS_ID";
}

}  // namespace gantry
