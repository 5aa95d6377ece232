#include "memory/pinned/host_placement.hpp"

#include <gantry/extend/driver.hpp>

#include "machine/topology/node_pages.hpp"
#include "memory/policy/config.hpp"

namespace gantry::memory {

HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes) {
  // From this size on several threads are faster than the driver's one.
  constexpr std::size_t kParallelBytes = std::size_t{64} << 20;
  if (platform() == Platform::none) return {.source = HostSource::ordinary};
  const bool worth_it =
      platform() == Platform::cuda && (bytes >= kParallelBytes || (several_nodes && node >= 0));
  const bool registers = alloc_config().pinned_register.value_or(worth_it);
  return {.source = registers ? HostSource::registered : HostSource::driver,
          .node = node,
          .threads = alloc_config().pinned_threads};
}

bool registers_host_pages() {
  if (platform() == Platform::none) return false;
  return alloc_config().pinned_register.value_or(platform() == Platform::cuda);
}

int host_register_threads() {
  if (!registers_host_pages()) return 1;
  const int chosen = alloc_config().pinned_threads;
  return chosen != 0 ? chosen : machine::most_page_threads();
}

}  // namespace gantry::memory
