// How often each function of NCCL's interface was called: GANTRY_NCCL_REPORT.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gantry::nccl_api {

// The calls of one function. Static objects, which live until the process ends.
// Thread safety: any thread.
class Tally {
 public:
  explicit Tally(const char* function) noexcept;
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  [[nodiscard]] const char* name() const noexcept { return function_; }
  void count() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }
  // The call is one of those that NCCL carries.
  void count_theirs() noexcept { theirs_.fetch_add(1, std::memory_order_relaxed); }
  void add_bytes(std::size_t bytes) noexcept { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(); }
  [[nodiscard]] std::uint64_t theirs() const noexcept { return theirs_.load(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(); }
  [[nodiscard]] const Tally* next() const noexcept { return next_; }

 private:
  const char* function_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> theirs_{0};
  std::atomic<std::uint64_t> bytes_{0};
  Tally* next_ = nullptr;
};

// Prints the calls of this process to stderr when it exits, if GANTRY_NCCL_REPORT asks for it.
void report_at_exit();

}  // namespace gantry::nccl_api
