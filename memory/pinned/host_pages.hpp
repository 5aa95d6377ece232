// Page-locked host memory from the system, near a device.
#pragma once

#include <cstddef>

namespace gantry::memory {

/// The source of host pages, to which they are released.
enum class HostSource : unsigned char {
  ordinary,    ///< operator new: there is no platform
  driver,      ///< Driver::allocate_pinned
  registered,  ///< own pages, page-locked with Driver::register_host
};

/// Where pages are wanted.
struct HostPlacement {
  HostSource source = HostSource::ordinary;
  int node = -1;  ///< NUMA node; -1: anywhere. For registered pages only
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

/// The source and the place of pages for an allocation of `bytes` near `node`; see Note [Getting
/// page-locked memory].
[[nodiscard]] HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes);

/// True if host_placement() can choose registered pages.
[[nodiscard]] bool registers_host_pages();
/// The largest number of threads that fault in one allocation of registered pages; 1 without them.
[[nodiscard]] int host_register_threads();

/// Memory of `bytes`, whole pages except for an ordinary source. Throws: CudaError.
[[nodiscard]] HostPages allocate_host_pages(std::size_t bytes, HostPlacement placement);
/// Throws: CudaError; then the pages are still there.
void release_host_pages(const HostPages& pages);

}  // namespace gantry::memory
