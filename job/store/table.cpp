#include "job/store/table.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <gantry/extend/store.hpp>

#include "core/assert.hpp"
#include "core/bytes.hpp"

namespace gantry::store {
namespace {

constexpr std::size_t kMaxWaitersPerClient = 1024;

// The prefix of a gather that `key` may belong to.
std::string prefix_of(std::string_view key) {
  const auto slash = key.rfind('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : key.substr(0, slash));
}

}  // namespace

const std::string* Table::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

bool Table::write(std::string_view key, std::string_view value) {
  const std::string* old = find(key);
  const std::size_t before = old == nullptr ? 0 : key.size() + old->size();
  GANTRY_ASSERT(bytes_ >= before, "a table has more bytes in a value than in all");
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
  GANTRY_ASSERT(bytes_ >= found->first.size() + found->second.size(),
                "more bytes leave a table than entered it");
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  if (const auto gather = gathers_.find(prefix_of(key)); gather != gathers_.end()) {
    gather->second.found = 0;
    find_more(gather->second.found, gather->first, gather->second.most());
  }
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

void Table::find_more(std::uint32_t& found, std::string_view prefix, std::uint32_t count) const {
  while (found < count && find(gather_key(prefix, found)) != nullptr) ++found;
}

std::optional<std::string_view> Table::answer_gather(const Waiter& waiter) {
  if (gather_.prefix != waiter.prefix) gather_ = {.prefix = waiter.prefix};
  find_more(gather_.found, waiter.prefix, waiter.count);
  if (gather_.found < waiter.count) return std::nullopt;
  if (gather_.count != waiter.count) {
    ByteWriter<std::string> values;
    // An answer longer than a value is refused, so the loop stops there.
    for (std::uint32_t i = 0; i < waiter.count && values.bytes().size() <= kStoreMaxValueBytes;
         ++i) {
      values.text(*find(gather_key(waiter.prefix, i)));
    }
    gather_.values = std::move(values.bytes());
    gather_.count = waiter.count;
  }
  return gather_.values;
}

std::uint32_t Table::GatherWaiters::most() const {
  std::uint32_t result = 0;
  for (const Waiter& waiter : waiters) result = std::max(result, waiter.count);
  return result;
}

bool Table::park(Waiter waiter) {
  std::size_t& count = waiters_of_[waiter.client];
  if (count >= kMaxWaitersPerClient) return false;
  ++count;
  if (waiter.count > 0) {
    GatherWaiters& gather = gathers_[waiter.prefix];
    find_more(gather.found, waiter.prefix, waiter.count);
    gather.waiters.push_back(std::move(waiter));
    return true;
  }
  std::vector<Waiter>& waiters = waiting_[waiter.keys.back()];
  waiters.push_back(std::move(waiter));
  return true;
}

void Table::count_taken(const std::vector<Waiter>& waiters) {
  for (const Waiter& waiter : waiters) {
    std::size_t& count = waiters_of_[waiter.client];
    GANTRY_ASSERT(count > 0, "a client has fewer waiters than are taken");
    --count;
  }
}

template <class Pick>
std::vector<Waiter> Table::take_gathers(GatherWaiters& of, Pick pick) {
  const auto rest = std::stable_partition(of.waiters.begin(), of.waiters.end(),
                                          [&](const Waiter& waiter) { return !pick(waiter); });
  std::vector<Waiter> taken(std::make_move_iterator(rest),
                            std::make_move_iterator(of.waiters.end()));
  of.waiters.erase(rest, of.waiters.end());
  count_taken(taken);
  return taken;
}

std::vector<Waiter> Table::take(const std::string& key) {
  std::vector<Waiter> taken;
  if (auto node = waiting_.extract(key); !node.empty()) {
    taken = std::move(node.mapped());
    count_taken(taken);
  }
  const auto gather = gathers_.find(prefix_of(key));
  if (gather == gathers_.end()) return taken;
  GatherWaiters& waiting = gather->second;
  if (key != gather_key(gather->first, waiting.found)) return taken;
  find_more(waiting.found, gather->first, waiting.most());
  for (Waiter& waiter :
       take_gathers(waiting, [&](const Waiter& one) { return one.count <= waiting.found; })) {
    taken.push_back(std::move(waiter));
  }
  if (waiting.waiters.empty()) gathers_.erase(gather);
  return taken;
}

std::vector<Waiter> Table::take_outdated(std::uint32_t ends) {
  std::vector<Waiter> taken;
  for (auto& [prefix, waiting] : gathers_) {
    for (Waiter& waiter :
         take_gathers(waiting, [&](const Waiter& one) { return one.ends && *one.ends != ends; })) {
      taken.push_back(std::move(waiter));
    }
  }
  std::erase_if(gathers_, [](const auto& gather) { return gather.second.waiters.empty(); });
  return taken;
}

std::vector<Waiter> Table::take_all() {
  std::vector<Waiter> all;
  for (auto& [key, waiters] : std::exchange(waiting_, {})) {
    for (Waiter& waiter : waiters) all.push_back(std::move(waiter));
  }
  for (auto& [prefix, waiting] : std::exchange(gathers_, {})) {
    for (Waiter& waiter : waiting.waiters) all.push_back(std::move(waiter));
  }
  GANTRY_ASSERT(all.size() == count_waiters(), "a waiter is counted for no client");
  waiters_of_.clear();
  return all;
}

void Table::forget(std::uint64_t client, std::uint64_t id) {
  const auto found = waiters_of_.find(client);
  if (found == waiters_of_.end()) return;
  const auto is_it = [&](const Waiter& waiter) {
    return waiter.client == client && (id == 0 || waiter.id == id);
  };
  for (auto entry = waiting_.begin(); found->second > 0 && entry != waiting_.end();) {
    found->second -= std::erase_if(entry->second, is_it);
    entry = entry->second.empty() ? waiting_.erase(entry) : std::next(entry);
  }
  for (auto entry = gathers_.begin(); found->second > 0 && entry != gathers_.end();) {
    found->second -= std::erase_if(entry->second.waiters, is_it);
    entry = entry->second.waiters.empty() ? gathers_.erase(entry) : std::next(entry);
  }
  GANTRY_ASSERT(id != 0 || found->second == 0, "a client is forgotten, and its waiters are not");
  if (id == 0) waiters_of_.erase(found);
}

std::size_t Table::count_waiters() const {
  std::size_t all = 0;
  for (const auto& [client, count] : waiters_of_) all += count;
  return all;
}

void Table::verify() const noexcept {
  [[maybe_unused]] std::size_t bytes = 0;
  for (const auto& [key, value] : values_) bytes += key.size() + value.size();
  GANTRY_ASSERT(bytes == bytes_, "a table does not know how many bytes it has");
  std::unordered_map<std::uint64_t, std::size_t> parked;
  for (const auto& [key, waiters] : waiting_) {
    GANTRY_ASSERT(!waiters.empty(), "a key is kept that nobody waits for");
    for (const Waiter& waiter : waiters) {
      GANTRY_ASSERT(waiter.count == 0 && !waiter.keys.empty() && waiter.keys.back() == key,
                    "a waiter waits for another key than it is parked at");
      ++parked[waiter.client];
    }
  }
  for (const auto& [prefix, gather] : gathers_) {
    GANTRY_ASSERT(!gather.waiters.empty(), "a gather is kept that nobody waits for");
    for (const Waiter& waiter : gather.waiters) {
      GANTRY_ASSERT(waiter.count > 0 && waiter.prefix == prefix,
                    "a waiter waits for another gather than it is parked at");
      ++parked[waiter.client];
    }
    for (std::uint32_t i = 0; i < gather.found; ++i) {
      GANTRY_ASSERT(find(gather_key(prefix, i)) != nullptr,
                    "a gather counts a key that is missing");
    }
  }
  for (const auto& [client, count] : waiters_of_) {
    const auto found = parked.find(client);
    GANTRY_ASSERT(count == (found == parked.end() ? 0 : found->second),
                  "a client has other waiters than are counted");
  }
  for (std::uint32_t i = 0; i < gather_.found; ++i) {
    GANTRY_ASSERT(find(gather_key(gather_.prefix, i)) != nullptr,
                  "the newest gather counts a key that is missing");
  }
}

}  // namespace gantry::store
