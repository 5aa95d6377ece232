#pragma once

#include <cstddef>

namespace gantry {

// The size thresholds of comm::*, measured on 8 × H200. Tests set other values while no collective
// runs.
struct CommTuning {
  // Note [Helper devices]
  // One device that writes to all n - 1 others, or reads from them, transfers n - 1 times the data
  // over its link. From this size on the other devices help: each handles one part of the data. So
  // no link carries more than the data once, which is the minimum. A helper of a broadcast reads
  // its part from the source and writes it to every receiver. A helper of a reduction reads its
  // part of every input and writes the result to the destination. Both are one pass of one kernel.
  // With link bandwidth B the time is about bytes / B instead of (n - 1) bytes / B. The cost is
  // twice the stream waits and n - 1 launches, some tens of microseconds. Of 394 GB/s that a copy
  // engine gets out of a link of an H200, loads of a kernel get 372 and stores 368; while as much
  // data goes the other way, loads 334 (their requests share the way), stores 363, copy engines
  // 390. A sum is all loads, so it stays below a broadcast.
  std::size_t helper_bytes = std::size_t{4} << 20;
  // From this size on copy engines send a scatter, all_gather, all_to_all, or a broadcast to one
  // other device: 6 % faster than a kernel's stores, but they begin some 5 us later on
  // the default stream.
  std::size_t send_by_engines_bytes = std::size_t{32} << 20;
  // From this size on copy engines read the chunks of a gather: 3 % faster than a kernel's loads,
  // and 10 us later.
  std::size_t fetch_by_engines_bytes = std::size_t{96} << 20;
  // The most bytes of cached outputs of one kind; see Note [Cached outputs].
  std::size_t cached_output_bytes = std::size_t{4} << 20;
};

[[nodiscard]] CommTuning& comm_tuning();

}  // namespace gantry
