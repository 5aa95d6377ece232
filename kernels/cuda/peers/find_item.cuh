// Look-up of a chunk's item, for kernels whose grid runs over the chunks of many arrays.
#pragma once

#include <cstdint>

namespace gantry::kernels {

// The item that contains `chunk`: the last item of `table` whose first chunk is at most `chunk`.
template <class Table>
__device__ int find_item(const Table& table, std::uint32_t chunk) {
  int low = 0;
  int high = table.item_count;
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
