#include "job/store/waiter.hpp"

#include <utility>

#include <gantry/extend/store.hpp>

namespace gantry::store {
namespace {

// The fields that a gather and an exchange begin with.
std::optional<Waiter> read_gather(std::uint64_t client, Reader& request) {
  const std::string_view prefix = request.text();
  const std::uint32_t count = request.u32();
  const std::int64_t known_ends = request.i64();
  const bool is_valid = count > 0 && count <= kMaxRank &&
                        is_valid_entry(gather_key(prefix, count), {}) && request.ok();
  if (!is_valid) return std::nullopt;
  Waiter waiter{client, request.id(), {}, true, std::string(prefix), count};
  if (known_ends >= 0) waiter.ends = static_cast<std::uint32_t>(known_ends);
  return waiter;
}

}  // namespace

std::string gather_key(std::string_view prefix, std::uint32_t number) {
  std::string key(prefix);
  key += '/';
  key += std::to_string(number);
  return key;
}

bool is_valid_entry(std::string_view key, std::string_view value) {
  return !key.empty() && key.size() <= kStoreMaxKeyBytes && value.size() <= kStoreMaxValueBytes;
}

std::optional<Waiter> read_waiter(std::uint64_t client, Reader& request) {
  if (request.kind() == Message::gather) {
    std::optional<Waiter> waiter = read_gather(client, request);
    return request.finished() ? waiter : std::nullopt;
  }
  const bool is_get = request.kind() == Message::get;
  const std::uint32_t count = is_get ? 1 : request.u32();
  Waiter waiter{client, request.id(), {}, is_get};
  for (std::uint32_t i = 0; i < count && request.ok(); ++i) {
    waiter.keys.emplace_back(request.text());
    if (!is_valid_entry(waiter.keys.back(), {})) return std::nullopt;
  }
  if (!request.finished()) return std::nullopt;
  return waiter;
}

std::optional<Exchange> read_exchange(std::uint64_t client, Reader& request) {
  std::optional<Waiter> waiter = read_gather(client, request);
  const std::uint32_t number = request.u32();
  Exchange result;
  result.value = request.text();
  result.outdated = request.text();
  if (!waiter || !request.finished() || number >= waiter->count) return std::nullopt;
  result.key = gather_key(waiter->prefix, number);
  if (!is_valid_entry(result.key, result.value)) return std::nullopt;
  result.waiter = std::move(*waiter);
  return result;
}

}  // namespace gantry::store
