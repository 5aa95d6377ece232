// The source and the place of page-locked memory, as GANTRY_ALLOC_CONF and the machine say.
#pragma once

#include <cstddef>

#include "device/host_pages.hpp"

namespace gantry::memory {

/// The source and the place of pages for an allocation of `bytes` near `node`; see Note [Getting
/// page-locked memory].
[[nodiscard]] HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes);

/// True if host_placement() can choose registered pages.
[[nodiscard]] bool registers_host_pages();
/// The largest number of threads that fault in one allocation of registered pages; 1 without them.
[[nodiscard]] int host_register_threads();

}  // namespace gantry::memory
