#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/assert.hpp"
#include "job/store/waiter.hpp"

namespace gantry::store {

/// The contents of a StoreServer: values within a byte limit, and requests that wait for one.
///
/// Thread safety: none; the serving thread owns it.
class Table {
 public:
  /// Value of `key`, a null pointer if there is none.
  [[nodiscard]] const std::string* find(std::string_view key) const;
  /// Writes a value; false, changing nothing, if the store would hold more than it may.
  [[nodiscard]] bool write(std::string_view key, std::string_view value);
  /// The sum of `delta` and the number that is the value of `key`, 0 if there is none; or why there
  /// is no sum.
  [[nodiscard]] std::variant<std::int64_t, std::string_view> sum(std::string_view key,
                                                                 std::int64_t delta) const;
  /// Removes a value; true if it was there.
  bool erase(std::string_view key);

  /// The value for `waiter` if all of its keys are written: the last one, or the texts of a gather
  /// behind each other. Otherwise drops the keys that need no look any more.
  [[nodiscard]] std::optional<std::string_view> answer(Waiter& waiter);
  /// Remembers `waiter`, which answer() did not answer; false if its client has too many already.
  [[nodiscard]] bool park(Waiter waiter);
  /// Takes out the waiters that may have waited for `key`, which was written.
  [[nodiscard]] std::vector<Waiter> take(const std::string& key);
  /// Takes out the waiters that wait with another number of ended ranks.
  [[nodiscard]] std::vector<Waiter> take_outdated(std::uint32_t ends);
  /// Takes out every waiter.
  [[nodiscard]] std::vector<Waiter> take_all();
  /// Forgets a client's waiter `id`, or all of its waiters if `id` is 0.
  void forget(std::uint64_t client, std::uint64_t id);
  /// Asserts that bytes and waiters are counted, and that every waiter is parked at its key.
  void verify() const noexcept;
  /// Asserts that `is_open(client)` holds for each client that has waiters.
  template <class IsOpen>
  void verify_clients([[maybe_unused]] IsOpen is_open) const noexcept {
    for ([[maybe_unused]] const auto& [client, count] : waiters_of_) {
      GANTRY_ASSERT(count == 0 || is_open(client), "a closed connection has waiters");
    }
  }

 private:
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<Waiter>> waiting_;
  std::unordered_map<std::uint64_t, std::size_t> waiters_of_;
  std::size_t bytes_ = 0;

  // The newest gather. All members of a group ask for the same one.
  struct Gather {
    std::string prefix = {};
    std::uint32_t found = 0;  // the keys before it are written
    std::uint32_t count = 0;  // of the values; 0: they are not put together
    std::string values = {};

    [[nodiscard]] bool has(std::string_view key) const;
  };
  std::optional<std::string_view> answer_gather(const Waiter& waiter);
  // Moves `found` past the keys that are written, up to `count`.
  void find_more(std::uint32_t& found, std::string_view prefix, std::uint32_t count) const;

  // The waiters of one gather. All members of a large group wait here, so a key that is written
  // costs the same for any number of them.
  struct GatherWaiters {
    std::uint32_t found = 0;  // the keys before it are written
    std::vector<Waiter> waiters = {};

    // The largest count.
    [[nodiscard]] std::uint32_t most() const;
  };
  template <class Pick>
  std::vector<Waiter> take_gathers(GatherWaiters& of, Pick pick);
  void count_taken(const std::vector<Waiter>& waiters);
  [[nodiscard]] std::size_t count_waiters() const;

  Gather gather_;
  std::unordered_map<std::string, GatherWaiters> gathers_;  // by prefix
};

/// Largest number of bytes of all keys and values together.
inline constexpr std::size_t kMaxTableBytes = std::size_t{1} << 30;

}  // namespace gantry::store
