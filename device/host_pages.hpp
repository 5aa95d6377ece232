// Page-locked host memory from the system, near a device.
#pragma once

#include <cstddef>

namespace gantry {

/// The source of host pages, to which they are released.
enum class HostSource : unsigned char {
  ordinary,    ///< operator new: there is no platform
  driver,      ///< Driver::allocate_pinned
  registered,  ///< own pages, page-locked with Driver::register_host
};

/// Where pages are wanted. The last two members are for registered pages only.
struct HostPlacement {
  HostSource source = HostSource::ordinary;
  int node = -1;    ///< NUMA node; -1: anywhere
  int threads = 0;  ///< the most that fault pages in; 0: machine::most_page_threads()
};

struct HostPages {
  std::byte* data = nullptr;  ///< nullptr: the system has none left
  std::size_t bytes = 0;
  HostSource source = HostSource::ordinary;
};

// Note [Getting page-locked memory]
// cudaHostAlloc faults pages in on one thread, which takes seconds for some GiB, and places them
// near the calling thread. So large allocations are mapped here, bound to the device's NUMA node,
// faulted in by several threads, and then registered with the driver. On machines with several NUMA
// nodes this applies to all allocations. The mapping is shared with child processes. With a private
// one, copy-on-write after a fork would give the parent a page that the device does not use.
// Simulated devices use the driver's memory, which is committed lazily.
// memory/pinned/host_placement.hpp decides.

/// Memory of `bytes`, whole pages except for an ordinary source. Throws: CudaError.
[[nodiscard]] HostPages allocate_host_pages(std::size_t bytes, HostPlacement placement);
/// Throws: CudaError; then the pages are still there.
void release_host_pages(const HostPages& pages);

}  // namespace gantry
