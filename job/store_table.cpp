#include "job/store_table.hpp"

#include <charconv>
#include <utility>

#include <gantry/extend/store.hpp>

namespace gantry::store {
namespace {

constexpr std::size_t kMaxWaitersPerClient = 1024;

}  // namespace

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
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
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
