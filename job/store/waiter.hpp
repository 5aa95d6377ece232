#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/store/messages.hpp"

namespace gantry::store {

/// A request of one client that waits until the last of `keys`, then the one before it, … is
/// written.
struct Waiter {
  std::uint64_t client;
  std::uint64_t id;
  std::vector<std::string> keys;
  bool wants_value;
  /// With `count`, it waits for "prefix/0" to "prefix/count-1" instead of `keys`.
  std::string prefix = {};
  std::uint32_t count = 0;
  /// Likewise; the number of ended ranks with which it waits.
  std::optional<std::uint32_t> ends = {};
};

/// Key `number` of a gather: "prefix/number".
[[nodiscard]] std::string gather_key(std::string_view prefix, std::uint32_t number);

/// True if these may be an entry of a store.
[[nodiscard]] bool is_valid_entry(std::string_view key, std::string_view value);

/// Reads the rest of a request of `client` that waits for keys: get, wait or gather. None if it is
/// malformed.
[[nodiscard]] std::optional<Waiter> read_waiter(std::uint64_t client, Reader& request);

/// A member's part of an exchange: it writes `value` under `key`, and waits for the values of all
/// members. The key `outdated` is removed before, if there is one. Views refer to the request.
struct Exchange {
  std::string key;
  std::string_view value;
  std::string_view outdated;
  Waiter waiter;
};

/// Reads the rest of an exchange of `client`. None if it is malformed.
[[nodiscard]] std::optional<Exchange> read_exchange(std::uint64_t client, Reader& request);

/// Largest number of a rank.
inline constexpr int kMaxRank = 1 << 20;

}  // namespace gantry::store
