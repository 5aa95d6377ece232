// The handles that the program has, with what is known of each.
#pragma once

#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace gantry::cudart_api {

// Never destroyed: the program may call at its exit. Thread safety: every call.
template <class Facts>
class Handles {
 public:
  void add(const void* handle, Facts facts) {
    const std::lock_guard lock(mutex_);
    facts_.insert_or_assign(handle, std::move(facts));
  }

  // Nothing for a handle that the program does not have.
  [[nodiscard]] std::optional<Facts> find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = facts_.find(handle);
    return found == facts_.end() ? std::nullopt : std::optional(found->second);
  }

  // The last handle that is not above `address`, if there is one.
  [[nodiscard]] std::optional<std::pair<const void*, Facts>> find_below(const void* address) const {
    const std::lock_guard lock(mutex_);
    const auto after = facts_.upper_bound(address);
    if (after == facts_.begin()) return std::nullopt;
    return *std::prev(after);
  }

  // As find(); the program does not have the handle any more.
  std::optional<Facts> take(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = facts_.find(handle);
    if (found == facts_.end()) return std::nullopt;
    std::optional<Facts> facts = std::move(found->second);
    facts_.erase(found);
    return facts;
  }

  // Calls `visit(handle, facts)` for each handle. No handle is taken meanwhile.
  template <class Visit>
  void for_each(Visit visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, facts] : facts_) visit(handle, facts);
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Facts> facts_;
};

}  // namespace gantry::cudart_api
