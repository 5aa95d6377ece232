// Page-locked host memory from the system, near a device.
#pragma once

#include <cstddef>

namespace gantry::memory {

/// How a piece of host memory was got, and so how it is given back.
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

/// Note [Getting page-locked memory]
/// The driver's own call faults pages in on one thread, which takes seconds for some GiB, and
/// places them near the calling thread. Large pieces are therefore mapped here, bound to the
/// device's NUMA node, faulted in by several threads and then registered. So are all pieces on
/// machines with several NUMA nodes. The mapping is shared: a fork must not move the parent's pages
/// away from the device. Simulated devices use the driver's memory, which is lazily committed.
[[nodiscard]] HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes);

/// True if host_placement ever asks for registered pages, and the most threads that fault in one
/// piece of them; else 1.
[[nodiscard]] bool registers_host_pages();
[[nodiscard]] int host_register_threads();

/// Memory of `bytes`, whole pages except for an ordinary source. Throws: CudaError.
[[nodiscard]] HostPages allocate_host_pages(std::size_t bytes, HostPlacement placement);
/// Throws: CudaError; then the pages are still there.
void release_host_pages(const HostPages& pages);

}  // namespace gantry::memory
