// Kernels over many arrays at once, which share one count of chunks.
#pragma once

#include <cstdint>

namespace gantry::kernels {

// The run that has `chunk`: the last one of `table` whose first chunk is not after it.
template <class Table>
__device__ int run_of(const Table& table, std::uint32_t chunk) {
  int low = 0;
  int high = table.run_count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_chunks[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace gantry::kernels
