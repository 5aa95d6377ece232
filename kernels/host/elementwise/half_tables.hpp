// Results of unary functions for every number of 16 bits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/elementwise/elementwise.hpp"

namespace gantry::kernels::host {

// Note [Functions of 16-bit numbers]
// A float of 16 bits has 65,536 values. A function that costs more than a look-up is computed once
// for all of them, by the loop that computes it otherwise, so the bits are the same. A table of
// 128 KiB is made when the function was computed for as many elements as the table holds.
class HalfTables {
 public:
  // The table of `op`, for `numel` elements more: word i is the result for the number with bits i.
  // Null if the loop is as fast, or the table does not pay yet. The table lives as long as *this.
  // Any thread may call it.
  [[nodiscard]] const std::uint16_t* find(UnaryOp op, DType dtype, std::int64_t numel);

 private:
  struct Table {
    std::mutex mutex;
    std::unique_ptr<std::uint16_t[]> words;
    std::atomic<const std::uint16_t*> made{nullptr};
    std::atomic<std::int64_t> computed{0};
  };
  static constexpr int kOps = static_cast<int>(UnaryOp::bitwise_not) + 1;

  std::array<Table, kOps> of_f16_;
  std::array<Table, kOps> of_bf16_;
};

// The process's tables. They are never destroyed: threads may compute while the process ends.
[[nodiscard]] HalfTables& half_tables();

}  // namespace gantry::kernels::host
