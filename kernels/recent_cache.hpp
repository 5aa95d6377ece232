#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace gantry::kernels {

// A map of at most `capacity` shared values. A full one evicts the value whose last use is the
// oldest; that value lives until its users let go of it.
// Thread safety: any thread. Values are made outside of the lock.
template <class Key, class Value, class Hash>
class RecentCache {
 public:
  // Precondition: capacity > 0.
  explicit RecentCache(std::size_t capacity) : capacity_(capacity) {}

  // The value of `key`, made by make() -> std::shared_ptr<Value> if there is none. Of two threads
  // that make the same value, one result is kept. Throws: as make().
  template <class Make>
  [[nodiscard]] std::shared_ptr<Value> find_or_make(const Key& key, const Make& make) {
    if (std::shared_ptr<Value> found = find(key)) return found;
    return keep(key, make());
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<Value> value;
  };
  using Entries = std::list<Entry>;  // the last used one is the first

  std::shared_ptr<Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  std::shared_ptr<Value> keep(const Key& key, std::shared_ptr<Value> value) {
    Entries evicted;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->value;
    Entries added;
    added.push_back({key, value});
    by_key_.emplace(key, added.begin());
    entries_.splice(entries_.begin(), added);
    if (entries_.size() > capacity_) {
      by_key_.erase(entries_.back().key);
      evicted.splice(evicted.begin(), entries_, std::prev(entries_.end()));
    }
    return value;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, typename Entries::iterator, Hash> by_key_;
};

}  // namespace gantry::kernels
