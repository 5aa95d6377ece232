#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace gantry::store {

/// A request of one client that waits until the last of `keys`, then the one before it, … is
/// written.
struct Waiter {
  std::uint64_t client;
  std::uint64_t id;
  std::vector<std::string> keys;
  bool wants_value;
  /// With `count`, it waits for "prefix/0" to "prefix/count-1"; `keys` has the first one that is
  /// missing.
  std::string prefix = {};
  std::uint32_t count = 0;
};

/// Key `number` of a gather: "prefix/number".
[[nodiscard]] std::string gather_key(std::string_view prefix, std::uint32_t number);

/// The contents of a StoreServer: values within a byte limit, and requests that wait for one.
///
/// Thread safety: none; the serving thread owns it.
class Table {
 public:
  /// True if these may be an entry.
  [[nodiscard]] static bool is_valid(std::string_view key, std::string_view value);
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
  /// Remembers `waiter` under its last key; false if its client has too many already.
  [[nodiscard]] bool park(Waiter waiter);
  /// Takes out the waiters of `key`.
  [[nodiscard]] std::vector<Waiter> take(const std::string& key);
  /// Takes out every waiter.
  [[nodiscard]] std::vector<Waiter> take_all();
  /// Forgets a client's waiter `id`, or all of its waiters if `id` is 0.
  void forget(std::uint64_t client, std::uint64_t id);

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
  std::optional<std::string_view> answer_gather(Waiter& waiter);

  Gather gather_;
};

/// Largest number of bytes of all keys and values together.
inline constexpr std::size_t kMaxTableBytes = std::size_t{1} << 30;

}  // namespace gantry::store
