#pragma once

#include <cstddef>

namespace gantry {

// From which sizes on comm::* works in which way, measured on 8 × H200. Tests set other values
// while no collective runs.
struct CommTuning {
  // Note [Shared work]
  // One device that writes all n - 1 others, or reads them, carries n - 1 times the data over its
  // own link. From here on the other devices share the work instead: each handles one part of the
  // data, so that no link carries more than all of it once, which is the least there is. A
  // broadcast's sharer reads its part from the source and writes it to every receiver, a sum's
  // reads it from every input and writes it to the destination, both in one pass of one kernel:
  // with bandwidth B of a link the time is about bytes / B instead of (n - 1) bytes / B. It takes
  // twice the stream waits and n - 1 launches, some tens of microseconds.
  // Of 394 GB/s that a copy engine gets out of a link of an H200, loads of a kernel get 372 and
  // stores 368; while as much data goes the other way, loads 334 (their requests share the way),
  // stores 363, copy engines 390. A sum is all loads, so it stays below a broadcast.
  std::size_t shared_bytes = std::size_t{4} << 20;
  // From here on copy engines send what a scatter, all_gather, all_to_all or a broadcast to one
  // other device only moves: 6 % faster than a kernel's stores, but they begin some 5 us later on
  // the default stream.
  std::size_t send_by_engines_bytes = std::size_t{32} << 20;
  // From here on they fetch the parts of a gather: 3 % faster than a kernel's loads, and 10 us
  // later.
  std::size_t fetch_by_engines_bytes = std::size_t{96} << 20;
  // Most bytes of one kind that are kept ready; see Note [Spare outputs].
  std::size_t unmapped_bytes = std::size_t{4} << 20;
};

[[nodiscard]] CommTuning& comm_tuning();

}  // namespace gantry
