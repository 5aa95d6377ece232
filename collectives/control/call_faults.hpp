// The faults of one communicator's calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>

namespace gantry {

// A failed call and its error.
struct CallFault {
  std::uint64_t call = 0;
  std::exception_ptr error;
};

// Keeps the latest faults. raise_unreported() throws each fault once; raise() throws it for its
// call at any time. Thread safety: any thread may call every member.
class CallFaults {
 public:
  // `is_unreported`: raise_unreported() has to throw this fault.
  void add(CallFault fault, bool is_unreported);
  bool has_unreported() const noexcept { return has_unreported_.load(std::memory_order_acquire); }
  // The error of the lowest call that failed; null: none.
  std::exception_ptr oldest();
  // Throws the fault of `call`, if there is one.
  void raise(std::uint64_t call);
  // Throws the unreported fault of the lowest call, if there is one.
  void raise_unreported();

 private:
  struct Entry {
    std::exception_ptr error;
    bool is_unreported;
  };
  static constexpr std::size_t kKept = 64;

  void update_unreported();
  [[noreturn]] void report(Entry& entry);

  std::mutex mutex_;
  std::map<std::uint64_t, Entry> faults_;  // by call
  std::atomic<bool> has_unreported_{false};
};

}  // namespace gantry
