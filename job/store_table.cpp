#include "job/store_table.hpp"

#include <charconv>
#include <utility>

#include <gantry/extend/store.hpp>

#include "core/bytes.hpp"

namespace gantry::store {
namespace {

constexpr std::size_t kMaxWaitersPerClient = 1024;

}  // namespace

std::string gather_key(std::string_view prefix, std::uint32_t number) {
  std::string key(prefix);
  key += '/';
  key += std::to_string(number);
  return key;
}

bool Table::is_valid(std::string_view key, std::string_view value) {
  return !key.empty() && key.size() <= kStoreMaxKeyBytes && value.size() <= kStoreMaxValueBytes;
}

const std::string* Table::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

bool Table::write(std::string_view key, std::string_view value) {
  const std::string* old = find(key);
  const std::size_t before = old == nullptr ? 0 : key.size() + old->size();
  const std::size_t after = bytes_ - before + key.size() + value.size();
  if (after > kMaxTableBytes) return false;
  if (gather_.has(key)) gather_.count = 0;
  values_[std::string(key)] = value;
  bytes_ = after;
  return true;
}

std::variant<std::int64_t, std::string_view> Table::sum(std::string_view key,
                                                        std::int64_t delta) const {
  std::int64_t value = 0;
  if (const std::string* text = find(key)) {
    const char* const last = text->data() + text->size();
    const auto [end, status] = std::from_chars(text->data(), last, value);
    if (status != std::errc{} || end != last) return "the value is not a whole number";
  }
  if (__builtin_add_overflow(value, delta, &value)) return "the sum overflows";
  return value;
}

bool Table::erase(std::string_view key) {
  const auto found = values_.find(std::string(key));
  if (found == values_.end()) return false;
  if (gather_.has(key)) gather_ = {};
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
}

bool Table::Gather::has(std::string_view key) const {
  return !prefix.empty() && key.size() > prefix.size() && key.starts_with(prefix) &&
         key[prefix.size()] == '/';
}

std::optional<std::string_view> Table::answer(Waiter& waiter) {
  if (waiter.count > 0) return answer_gather(waiter);
  std::string_view value;
  while (!waiter.keys.empty()) {
    const std::string* entry = find(waiter.keys.back());
    if (entry == nullptr) return std::nullopt;
    value = *entry;
    waiter.keys.pop_back();
  }
  return value;
}

std::optional<std::string_view> Table::answer_gather(Waiter& waiter) {
  if (gather_.prefix != waiter.prefix) gather_ = {.prefix = waiter.prefix};
  waiter.keys.clear();
  for (; gather_.found < waiter.count; ++gather_.found) {
    std::string key = gather_key(waiter.prefix, gather_.found);
    if (find(key) != nullptr) continue;
    waiter.keys.push_back(std::move(key));
    return std::nullopt;
  }
  if (gather_.count != waiter.count) {
    ByteWriter<std::string> values;
    // What is longer than a value is not an answer, so it need not be whole.
    for (std::uint32_t i = 0; i < waiter.count && values.bytes().size() <= kStoreMaxValueBytes;
         ++i) {
      values.text(*find(gather_key(waiter.prefix, i)));
    }
    gather_.values = std::move(values.bytes());
    gather_.count = waiter.count;
  }
  return gather_.values;
}

bool Table::park(Waiter waiter) {
  std::size_t& count = waiters_of_[waiter.client];
  if (count >= kMaxWaitersPerClient) return false;
  ++count;
  std::vector<Waiter>& waiters = waiting_[waiter.keys.back()];
  waiters.push_back(std::move(waiter));
  return true;
}

std::vector<Waiter> Table::take(const std::string& key) {
  auto node = waiting_.extract(key);
  if (node.empty()) return {};
  for (const Waiter& waiter : node.mapped()) --waiters_of_[waiter.client];
  return std::move(node.mapped());
}

std::vector<Waiter> Table::take_all() {
  std::vector<Waiter> all;
  for (auto& [key, waiters] : std::exchange(waiting_, {})) {
    for (Waiter& waiter : waiters) all.push_back(std::move(waiter));
  }
  waiters_of_.clear();
  return all;
}

void Table::forget(std::uint64_t client, std::uint64_t id) {
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    waiters_of_[client] -= std::erase_if(entry->second, [&](const Waiter& waiter) {
      return waiter.client == client && (id == 0 || waiter.id == id);
    });
    entry = entry->second.empty() ? waiting_.erase(entry) : std::next(entry);
  }
  if (id == 0) waiters_of_.erase(client);
}

}  // namespace gantry::store
