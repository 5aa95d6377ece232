// The accesses of simulated kernels to the memory of ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::protocol::accesses {

// Data that one block reads, writes or copies, and not the words by which it signals. `to` or
// `from` is null where the block holds the data itself.
struct Access {
  int rank = -1;  // of the block
  int block = 0;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
  bool is_unit = false;   // a unit with flags, such as an LL packet
  bool is_reply = false;  // a unit that is written behind the first look at another rank's unit
};

// A watcher of all simulated kernels. For tests, which count what moves.
//
// Thread safety: every member, by the threads that run kernels.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void on_access(const Access& access) = 0;
  // A block has ended. `steps`: its rounds of signals or of units, one behind the other.
  virtual void on_end(int rank, int block, std::int64_t steps) = 0;
};

// Makes every kernel that is launched from now on tell `watcher`; nullptr for none.
void set_watcher(Watcher* watcher) noexcept;
Watcher* watcher() noexcept;

}  // namespace gantry::protocol::accesses
