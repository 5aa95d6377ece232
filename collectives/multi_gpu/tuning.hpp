#pragma once

#include <cstddef>

namespace gantry {

// The size thresholds of comm::*, measured on 8 × H200. Tests set other values while no collective
// runs.
struct CommTuning {
  // Note [Helper devices]
  // One device that writes to all n - 1 others, or reads from them, transfers n - 1 times the data
  // over its link. For large data all other devices become helpers, and each handles one part. So
  // no link carries the data more than once, which is the minimum. A helper of a broadcast reads
  // its part from the source and writes it to every receiver. A helper of a reduction reads its
  // part of every input and writes the result to the destination. Both are one pass of one kernel.
  // With link bandwidth B the time is about bytes / B instead of (n - 1) bytes / B. The cost is
  // twice the stream waits and n - 1 launches, some tens of microseconds. Bandwidth of one
  // direction of an H200's link, in GB/s: copy engine 394, loads of a kernel 372, stores 368. With
  // equal traffic in the other direction: copy engine 390, loads 334, because their requests share
  // that direction, and stores 363. A sum consists of loads, so it is slower than a broadcast.
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
