#pragma once

#include <atomic>
#include <cstdint>

namespace gantry {

// The least of the calls' numbers that threads have reported.
//
// Thread safety: any thread.
class LeastCall {
 public:
  // Threads that report at one time lose no number.
  void lower(std::uint64_t call) noexcept {
    std::uint64_t seen = call_.load();
    while (call < seen && !call_.compare_exchange_weak(seen, call)) {
    }
  }
  // UINT64_MAX before the first report.
  [[nodiscard]] std::uint64_t get() const noexcept { return call_.load(); }

 private:
  std::atomic<std::uint64_t> call_{UINT64_MAX};
};

}  // namespace gantry
