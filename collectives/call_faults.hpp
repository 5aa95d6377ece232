// What went wrong with the calls of one communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>

namespace gantry {

// A call's number, and what it means that its operation failed.
struct CallFault {
  std::uint64_t call = 0;
  std::exception_ptr error;
};

// Keeps the latest faults: one is news to whoever asks first, and stays the answer for its call.
// Thread safety: every member may be called from any thread.
class CallFaults {
 public:
  // `is_news`: whether anybody has to be told who does not ask for this call.
  void add(CallFault fault, bool is_news);
  bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }
  // Throws the fault of `call`, if there is one.
  void raise(std::uint64_t call);
  // Throws the fault of the lowest call that nobody was told of, if there is one.
  void raise_news();

 private:
  struct Entry {
    std::exception_ptr error;
    bool is_news;
  };
  static constexpr std::size_t kKept = 64;

  void note_news();
  [[noreturn]] void tell(Entry& entry);

  std::mutex mutex_;
  std::map<std::uint64_t, Entry> faults_;  // by call
  std::atomic<bool> has_news_{false};
};

}  // namespace gantry
